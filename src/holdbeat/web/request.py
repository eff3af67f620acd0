"""The request for a page: its path, its query, and the key of its reader.

Guards the pages against their own addresses: a query that a page does not know is left aside, and what it does know
reaches the store only through the same checks as the API's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode
from zoneinfo import ZoneInfo

from starlette.requests import Request

from holdbeat.api.context import ApiContext
from holdbeat.domain.api_key import Scope
from holdbeat.domain.cron import zone_of
from holdbeat.domain.errors import Invalid, NotFound
from holdbeat.domain.ids import is_id

LONGEST = 500
UTC = ZoneInfo("UTC")
AUTO = "auto:"
"""Begins the cookie of a reader who follows the browser's zone."""


def reader_zone(request: Request) -> ZoneInfo:
    """The zone of the cookie that the page's script keeps; UTC if there is none, or if it is not known here."""
    name = unquote(request.cookies.get("holdbeat_zone", "UTC")).removeprefix(AUTO)
    try:
        return zone_of(name)
    except Invalid:
        return UTC


@dataclass(slots=True)
class PageRequest:
    """What a reader asks of a page."""

    context: ApiContext
    path: dict[str, str]
    query: dict[str, str] = field(default_factory=dict)
    scope: Scope = Scope.READ
    caller: str | None = None
    zone: ZoneInfo = UTC
    """The zone in which this reader wants to see times."""

    @staticmethod
    def of(request: Request, context: ApiContext) -> PageRequest:
        query = {
            name: value.strip()[:LONGEST]
            for name, value in request.query_params.items()
            if value.strip() and "\x00" not in value and value.isprintable()
        }
        return PageRequest(
            context,
            dict(request.path_params),
            query,
            request.scope["holdbeat.scope"],
            request.scope["holdbeat.caller"],
            reader_zone(request),
        )

    @property
    def can_write(self) -> bool:
        return self.scope.covers(Scope.WRITE)

    def id(self, what: str) -> str:
        """The id in the path; what has not the form of one cannot exist."""
        text = self.path["id"]
        if not is_id(text):
            raise NotFound(f"There is no {what} {text[:100]}.")
        return text

    def text(self, name: str) -> str | None:
        return self.query.get(name)

    def filters(self, *names: str) -> dict[str, Any]:
        """The filters of the query that say something."""
        return {name: self.query[name] for name in names if name in self.query}

    def link_with(self, path: str, **changes: str | None) -> str:
        """This page's address with some of its query changed; None takes a part away."""
        query = {name: value for name, value in {**self.query, **changes}.items() if value}
        return f"{path}?{urlencode(query)}" if query else path
