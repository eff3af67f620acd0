"""Each route with each scope: who comes in, and that the documentation says the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdbeat.api.access import OPEN_PATHS
from holdbeat.domain.api_key import Scope
from tests.api.serving import Served

ANY_ID = "0190b5a0-0000-7000-8000-000000000000"
PLACES = {"{id}": ANY_ID, "{type}": "echo", "{name}": "result"}
ADMIN_ONLY = {
    ("GET", "/api/keys"), ("POST", "/api/keys"), ("DELETE", "/api/keys/{id}"),
    ("GET", "/api/webhooks/secret"), ("POST", "/api/webhooks/secret/rotate"),
}  # fmt: skip
BODIES = {("POST", "/api/keys"): {"name": "made", "scope": "read"}}
"""What is refused before the scope is looked at, unless it is well formed."""
STREAMS = {("GET", "/api/events")}
"""Answered for as long as the client listens; tests of streams have their own."""

Route = tuple[str, str]


@pytest.fixture(scope="module")
def locked(new_store_url: Any) -> Iterator[Served]:
    """A server that has keys, and nobody else's data."""
    server = Served(new_store_url(), is_key_needed=True, has_worker=False)
    yield server
    server.stop()


def documented(served: Served) -> dict[Route, str]:
    """Every route of the OpenAPI document, and what it says about it."""
    with served.new_client(served.admin_key) as admin:
        paths = admin.get("/openapi.json").json()["paths"]
    return {
        (method.upper(), path): f"{operation.get('summary', '')} {operation.get('description', '')}"
        for path, methods in paths.items()
        for method, operation in methods.items()
    }


def expected(route: Route, scope: Scope | None) -> str:
    if route[1] in OPEN_PATHS:
        return "open"
    if scope is None:
        return "no key"
    if scope is not Scope.READ:
        return "refused" if route in ADMIN_ONLY and scope is Scope.WRITE else "open"
    return "open" if route[0] == "GET" and route not in ADMIN_ONLY else "refused"


@pytest.mark.rule("SEC-02")
def test_each_route_opens_for_its_scopes_and_for_no_others(locked: Served) -> None:
    routes = [route for route in documented(locked) if route not in STREAMS]
    assert len(routes) > 100
    found = {}
    for scope in (None, Scope.READ, Scope.WRITE, Scope.ADMIN):
        with locked.new_client(locked.add_key(scope) if scope else None) as client:
            for method, path in routes:
                concrete = path
                for place, value in PLACES.items():
                    concrete = concrete.replace(place, value)
                status = client.request(method, concrete, json=BODIES.get((method, path))).status_code
                assert status != 500, (method, path, scope)
                found[(method, path), scope] = {401: "no key", 403: "refused"}.get(status, "open")
    assert found == {(route, scope): expected(route, scope) for route, scope in found}


@pytest.mark.rule("SEC-02", "API-01")
def test_the_documentation_names_the_routes_that_need_an_admin(locked: Served) -> None:
    assert {route for route, text in documented(locked).items() if "scope admin" in text} == ADMIN_ONLY
