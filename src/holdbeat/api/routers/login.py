"""Logging in and out of the dashboard with an API key (SEC-02)."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response

from holdbeat.api.problem import problem
from holdbeat.api.request import ApiRequest, read_body
from holdbeat.api.routes import Routes
from holdbeat.api.sessions import HOME, cookie, ended_cookie, login_before, page_of
from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import loads_strict
from holdbeat.operations.checks import checked_fields
from holdbeat.schemas.system import LoginRequest

routes = Routes("sessions")
_FORM = "application/x-www-form-urlencoded"


@routes.post("/login", body=LoginRequest, answers={204: None, 303: None})
async def log_in(request: ApiRequest) -> Response:
    """Start a session of the dashboard with an API key, sent as JSON or by the login page's form."""
    is_form = request.request.headers.get("content-type", "").startswith(_FORM)
    raw = await read_body(request.request)
    target = HOME
    if is_form:
        try:
            form = parse_qs(raw.decode("latin-1"), max_num_fields=10)
        except ValueError:
            raise Invalid("The form has too many fields; it needs the field key alone.", code="invalid_form") from None
        key = form.get("key", [""])[0]
        target = form.get("next", [HOME])[0]
    else:
        fields = checked_fields(loads_strict(raw), ("key",), required=("key",))
        if not isinstance(fields["key"], str):
            raise Invalid("key must be a text.", code="invalid_text", field="key")
        key = fields["key"]
    api_key = await request.context.keys.find(key.strip())
    if api_key is None:
        if is_form:
            return RedirectResponse(login_before(target, was_refused=True), 303)
        return problem(401, "unauthorized", "This key is not known.", headers={"WWW-Authenticate": "Bearer"})
    response = RedirectResponse(page_of(target), 303) if is_form else Response(status_code=204)
    value = await request.context.sessions.begin(api_key)
    response.headers.append("Set-Cookie", cookie(value, is_secure=request.request.url.scheme == "https"))
    return response


@routes.post("/logout", answers={303: None})
async def log_out(request: ApiRequest) -> Response:
    """End the session of the dashboard."""
    cookies = request.request.headers.get("cookie")
    if cookies is not None:
        await request.context.sessions.end(cookies)
    response = RedirectResponse("/login", 303)
    response.headers.append("Set-Cookie", ended_cookie())
    return response
