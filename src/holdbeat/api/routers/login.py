"""Logging in and out of the dashboard with an API key (SEC-02)."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response

from holdbeat.api.login_redirect import HOME, login_before, page_of
from holdbeat.api.problem import problem
from holdbeat.api.request import ApiRequest, checked_fields, read_body
from holdbeat.api.routes import Routes
from holdbeat.api.schemas.others import LoginRequest
from holdbeat.api.sessions import cookie, ended_cookie
from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import loads_strict

routes = Routes("sessions")
_FORM = "application/x-www-form-urlencoded"


@routes.post("/login", body=LoginRequest, answers={204: None, 303: None})
async def log_in(call: ApiRequest) -> Response:
    """Begin a session of the dashboard with an API key, sent as JSON or by the login page's form."""
    is_form = call.request.headers.get("content-type", "").startswith(_FORM)
    raw = await read_body(call.request)
    wanted = HOME
    if is_form:
        try:
            given = parse_qs(raw.decode("latin-1"), max_num_fields=10)
        except ValueError:
            raise Invalid("The form has too many fields; it needs the field key alone.", code="invalid_form") from None
        key = given.get("key", [""])[0]
        wanted = given.get("next", [HOME])[0]
    else:
        fields = checked_fields(loads_strict(raw), ("key",), required=("key",))
        if not isinstance(fields["key"], str):
            raise Invalid("key must be a text.", code="invalid_text", field="key")
        key = fields["key"]
    found = await call.service.keys.find(key.strip())
    if found is None:
        if is_form:
            return RedirectResponse(login_before(wanted, was_refused=True), 303)
        return problem(401, "unauthorized", "This key is not known.", headers={"WWW-Authenticate": "Bearer"})
    response = RedirectResponse(page_of(wanted), 303) if is_form else Response(status_code=204)
    value = await call.service.sessions.begin(found)
    response.headers.append("Set-Cookie", cookie(value, is_secure=call.request.url.scheme == "https"))
    return response


@routes.post("/logout", answers={303: None})
async def log_out(call: ApiRequest) -> Response:
    """End the session of the dashboard."""
    response = RedirectResponse("/login", 303)
    response.headers.append("Set-Cookie", ended_cookie())
    return response
