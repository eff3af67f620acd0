"""The pages of the dashboard: where they are, what they read, and the files that they are made of.

Guards that a page is one look at the store: everything that it shows comes from one snapshot, through verbs that only
read. Whatever a page can do, it does through the API, so there is one way to change something.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdbeat import __version__
from holdbeat.api.context import ApiContext
from holdbeat.api.problem import refusal, status_of
from holdbeat.api.sessions import HOME, page_of
from holdbeat.api.stream_access import KEY_ID
from holdbeat.domain import events
from holdbeat.domain.errors import HoldbeatError, NotFound
from holdbeat.store.transaction import Transaction
from holdbeat.web import forms, jobs, overview, queue, schedules, system
from holdbeat.web.rendering import environment
from holdbeat.web.request import PageRequest

log = logging.getLogger("holdbeat.web")

Reader = Callable[[Transaction, PageRequest], dict[str, Any]]
EVENT_NAMES = " ".join(sorted(value for name, value in vars(events).items() if name.isupper()))
MEDIA = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
FOREVER = "public, max-age=31536000, immutable"
THEMES = ("light", "dark")


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its path, its template, the entry of the menu that it belongs to, and what it reads."""

    path: str
    template: str
    title: str
    menu: str
    read: Reader


PAGES = (
    Page("/", "overview.html", "Overview", "overview", overview.read_overview),
    Page("/ui/questions", "open_questions.html", "Questions", "overview", overview.read_questions),
    Page("/ui/queue", "queue.html", "Queue", "queue", queue.read_queue),
    Page("/ui/timeline", "timeline.html", "Timeline", "timeline", overview.read_timeline),
    Page("/ui/jobs", "jobs.html", "Jobs", "jobs", jobs.read_jobs),
    Page("/ui/jobs/new", "new_job.html", "New job", "jobs", forms.read_new_job),
    Page("/ui/jobs/{id}", "job.html", "Job", "jobs", jobs.read_job),
    Page("/ui/groups", "groups.html", "Groups", "groups", jobs.read_groups),
    Page("/ui/groups/new", "new_group.html", "New group", "groups", forms.read_new_job),
    Page("/ui/groups/{id}", "group.html", "Group", "groups", jobs.read_group),
    Page("/ui/direct", "direct.html", "Direct request", "direct", jobs.read_direct),
    Page("/ui/reservations/{id}", "reservation.html", "Reservation", "direct", jobs.read_reservation),
    Page("/ui/schedules", "schedules.html", "Schedules", "schedules", schedules.read_schedules),
    Page("/ui/schedules/new", "new_schedule.html", "New schedule", "schedules", forms.read_new_schedule),
    Page("/ui/schedules/{id}", "schedule.html", "Schedule", "schedules", schedules.read_one),
    Page("/ui/schedules/{id}/change", "change_schedule.html", "Change", "schedules", forms.read_change_schedule),
    Page("/ui/endpoints", "endpoints.html", "Endpoints", "endpoints", partial(schedules.read_list, endpoint=True)),
    Page("/ui/endpoints/new", "new_endpoint.html", "New endpoint", "endpoints", forms.read_new_endpoint),
    Page("/ui/endpoints/{id}", "schedule.html", "Endpoint", "endpoints", partial(schedules.read_one, endpoint=True)),
    Page("/ui/endpoints/{id}/change", "change_schedule.html", "Change", "endpoints", forms.read_change_schedule),
    Page("/ui/webhooks", "webhooks.html", "Webhooks", "webhooks", system.read_webhooks),
    Page("/ui/webhooks/new", "new_webhook.html", "New webhook", "webhooks", forms.read_new_webhook),
    Page("/ui/events", "events.html", "Events", "events", system.read_events),
    Page("/ui/workers", "workers.html", "Workers", "workers", system.read_workers),
    Page("/ui/limits", "limits.html", "Limits", "limits", system.read_limits),
    Page("/ui/keys", "keys.html", "API keys", "keys", system.read_keys),
    Page("/ui/keys/new", "new_key.html", "New API key", "keys", system.read_new_key),
    Page("/ui/settings", "settings.html", "Settings", "settings", system.read_settings),
)

NOWHERE = Page("/ui/{rest}", "refused.html", "Not found", "", lambda tx, request: {})


class Dashboard:
    """All pages of one server."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._templates: Environment = environment()
        self._files = _static_files()
        digest = hashlib.sha256(b"".join(self._files[name] for name in sorted(self._files))).hexdigest()[:12]
        self._static = f"/static/{digest}"

    def routes(self) -> list[Route]:
        page_routes = [Route(page.path, self._page(page), methods=["GET"]) for page in PAGES]
        page_routes.append(Route("/login", self._login, methods=["GET"]))
        page_routes.append(Route("/static/{digest}/{name}", self._file, methods=["GET"]))
        page_routes.append(Route("/ui", self._nowhere, methods=["GET"]))
        page_routes.append(Route("/ui/{rest:path}", self._nowhere, methods=["GET"]))
        return page_routes

    def _page(self, page: Page) -> Callable[[Request], Any]:
        async def show(request: Request) -> Response:
            page_request = PageRequest.of(request, self._context)
            try:
                async with self._context.client_limits.read(request.scope[KEY_ID], is_search="{" not in page.path):
                    values = await self._context.store.read_for_client(page.read, page_request)
            except HoldbeatError as error:
                return self._refused(request, page_request, page, error)
            return self._rendered(request, page.template, page, page_request, values)

        return show

    def _rendered(
        self,
        request: Request,
        template: str,
        page: Page,
        page_request: PageRequest,
        values: dict[str, Any],
        status: int = 200,
    ) -> Response:
        text = self._templates.get_template(template).render(
            {
                "now": self._context.store.clock.now(),
                "title": page.title,
                "menu": page.menu,
                "request": page_request,
                "zone": page_request.zone,
                "can_write": page_request.can_write,
                "caller": page_request.caller,
                "has_keys": self._context.keys.any_exists,
                **self._frame(request),
                **values,
            }
        )
        return Response(text, status, media_type="text/html")

    def _frame(self, request: Request) -> dict[str, Any]:
        theme = request.cookies.get("holdbeat_theme")
        return {
            "static": self._static,
            "theme": theme if theme in THEMES else None,
            "event_names": EVENT_NAMES,
            "version": __version__,
            "address": f"{request.url.scheme}://{request.url.netloc}",
        }

    def _refused(self, request: Request, page_request: PageRequest, page: Page, error: HoldbeatError) -> Response:
        status = status_of(error)
        if status >= 500:
            log.warning("the page %s cannot be shown: %s", page.path, error)
        # A filter or a cursor that is refused must not keep anybody from the list itself.
        unfiltered = request.url.path if status == 422 and request.url.query else None
        values = {"status": status, "detail": error.detail, "unfiltered": unfiltered}
        return self._rendered(request, "refused.html", page, page_request, values, status)

    async def _nowhere(self, request: Request) -> Response:
        """Below /ui there is a page for every mistake, unless it is a program that asks."""
        if request.url.path in ("/ui", "/ui/"):
            return RedirectResponse(HOME, 303)
        missing = NotFound("There is no such page.")
        if "text/html" not in request.headers.get("accept", ""):
            return refusal(missing)
        return self._refused(request, PageRequest.of(request, self._context), NOWHERE, missing)

    async def _login(self, request: Request) -> Response:
        if not self._context.keys.any_exists or request.scope["holdbeat.caller"] is not None:
            return RedirectResponse(page_of(request.query_params.get("next", HOME)), 303)
        values = {
            "was_refused": request.query_params.get("refused") is not None,
            "next": page_of(request.query_params.get("next", HOME)),
        }
        text = self._templates.get_template("login.html").render({**self._frame(request), **values})
        return Response(text, media_type="text/html")

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = self._files.get(name)
        if content is None:
            return Response("There is no such file.", 404, media_type="text/plain")
        is_current = self._static.endswith(f"/{request.path_params['digest']}")
        cache = {"Cache-Control": FOREVER if is_current else "no-cache"}
        return Response(content, 200, cache, MEDIA[name.rpartition(".")[2]])


def _static_files() -> dict[str, bytes]:
    """The static files of the pages, by name; read once."""
    folder = files("holdbeat.web") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in MEDIA}


def install(app: Starlette, context: ApiContext) -> None:
    """Adds the dashboard to the application that serves the API."""
    context.has_dashboard = True
    app.router.routes.extend(Dashboard(context).routes())
