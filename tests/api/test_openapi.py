"""The OpenAPI document holds: for every route, for every answer, under fuzz."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.api.serving import Served, unique

FUZZ_S = 6.0
"""For each store; every operation is tried at least once, however long that takes."""
ENDLESS = (
    "/api/events", "/api/jobs/{id}/logs", "/api/jobs/{id}/chunks", "/api/reservations/{id}/logs",
    "/api/reservations/{id}/chunks",
)  # fmt: skip
WAITING = ("/api/direct/{type}", "/api/reservations")
OUTBOUND = ("/api/endpoints/{id}/test",)
TOLD = ("etag", "location", "retry-after", "www-authenticate", "allow", "deprecation", "sunset", "link")


def no_header_is_undocumented(context: Any, response: Any, case: Any) -> None:
    """What tells a client something is in the document of the answer that it came with."""
    output = case.operation.definition.raw["responses"][str(response.status_code)].get("headers", {})
    undocumented = {name for name in TOLD if name in response.headers} - {name.lower() for name in output}
    assert not undocumented, undocumented


def no_fault(context: Any, response: Any, case: Any) -> None:
    """A server error is a fault, but for the 504 of a request that waited for a slot in vain."""
    if not (response.status_code == 504 and case.operation.path in WAITING):
        not_a_server_error(context, response, case)


CLOSING = ("/api/queue/pause", "/api/keys")
"""Routes after which the server would refuse the rest."""
CHECKS = [
    no_fault,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    no_header_is_undocumented,
]


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


@pytest.mark.rule("API-01")
def test_every_route_documents_its_refusals_and_has_a_name_of_its_own(served: Served) -> None:
    document = served.client.get("/openapi.json").json()
    result = operations(document)
    names = [operation["operationId"] for _, _, operation in result]
    assert len(names) == len(set(names)) > 70
    for path, _, operation in result:
        assert operation["summary"]
        assert operation["tags"]
        refused = {status: item for status, item in operation["responses"].items() if status >= "400"}
        assert {"401", "403", "421", "422", "500", "503"} <= refused.keys(), path
        for item in refused.values():
            assert item["content"].keys() == {"application/problem+json"}
        if "requestBody" in operation:
            assert {"400", "413"} <= refused.keys(), path
        if "{id}" in path:
            assert "404" in refused, path


@pytest.mark.rule("API-01")
def test_every_route_of_the_contract_is_there(served: Served) -> None:
    document = served.client.get("/openapi.json").json()
    collected = {(method.upper(), path) for path, method, _ in operations(document)}
    of_schedules = [
        ("POST", ""), ("GET", ""), ("GET", "/{id}"), ("PATCH", "/{id}"), ("DELETE", "/{id}"), ("POST", "/{id}/enable"),
        ("POST", "/{id}/disable"), ("POST", "/{id}/trigger"), ("POST", "/{id}/pause"), ("POST", "/{id}/resume"),
        ("POST", "/{id}/reset-failures"), ("POST", "/{id}/hints"), ("DELETE", "/{id}/hints"),
        ("GET", "/{id}/occurrences"), ("GET", "/{id}/explain"), ("GET", "/{id}/preview"), ("POST", "/preview"),
    ]  # fmt: skip
    expected = {
        (method, prefix + path) for method, path in of_schedules for prefix in ("/api/schedules", "/api/endpoints")
    }
    expected |= {
        ("POST", "/api/jobs"), ("GET", "/api/jobs"), ("POST", "/api/jobs/batch"), ("GET", "/api/jobs/{id}"),
        ("PATCH", "/api/jobs/{id}"), ("POST", "/api/jobs/{id}/cancel"), ("POST", "/api/jobs/{id}/retry"),
        ("POST", "/api/jobs/{id}/move"), ("GET", "/api/jobs/{id}/explain"), ("GET", "/api/jobs/{id}/logs"),
        ("GET", "/api/jobs/{id}/events"), ("POST", "/api/jobs/cancel"), ("POST", "/api/job-runs/retry"),
        ("GET", "/api/queue"), ("POST", "/api/queue/reorder"), ("POST", "/api/queue/pause"),
        ("POST", "/api/queue/resume"), ("GET", "/api/job-runs"), ("GET", "/api/job-runs/{id}"),
        ("POST", "/api/job-runs/{id}/retry"), ("GET", "/api/job-runs/{id}/artifacts/{name}"),
        ("POST", "/api/job-templates"), ("GET", "/api/job-templates"), ("GET", "/api/job-templates/{id}"),
        ("PATCH", "/api/job-templates/{id}"), ("DELETE", "/api/job-templates/{id}"), ("POST", "/api/job-groups"),
        ("GET", "/api/job-groups"), ("GET", "/api/job-groups/{id}"), ("POST", "/api/job-groups/{id}/cancel"),
        ("POST", "/api/endpoints/{id}/test"), ("GET", "/api/endpoints/{id}/health"),
        ("POST", "/api/direct/{type}"), ("GET", "/api/reservations"), ("POST", "/api/reservations/{id}/cancel"),
        ("POST", "/api/webhooks"), ("GET", "/api/webhooks"), ("GET", "/api/webhooks/{id}"),
        ("PATCH", "/api/webhooks/{id}"), ("DELETE", "/api/webhooks/{id}"), ("POST", "/api/webhooks/{id}/rotate"),
        ("GET", "/api/deliveries"), ("POST", "/api/deliveries/{id}/redeliver"), ("GET", "/api/stats"),
        ("GET", "/api/workers"), ("GET", "/api/job-types"), ("GET", "/api/events"), ("GET", "/healthz"),
        ("GET", "/readyz"), ("GET", "/metrics"), ("POST", "/jobs/{type}/trigger"), ("POST", "/jobs/batch/trigger"),
        ("GET", "/jobs"), ("GET", "/jobs/{id}"), ("GET", "/jobs/batch/{id}"), ("POST", "/jobs/{id}/cancel"),
    }  # fmt: skip
    assert expected <= collected, expected - collected


@pytest.mark.rule("API-01", "SEC-06")
def test_no_generated_request_meets_a_fault_or_an_undocumented_answer(served: Served) -> None:
    # Things for the fuzz to find: otherwise most of it would end at 404.
    known = {
        "/api/jobs/{id}": served.run_job("fail")["id"],
        "/api/job-runs/{id}": served.run_job("draw")["run"]["id"],
        "/jobs/{id}": served.run_job("echo")["id"],
        "/api/job-templates/{id}": _made(served, "/api/job-templates", name=unique("t"), type="echo"),
        "/api/schedules/{id}": _made(served, "/api/schedules", name=unique("s"), type="echo", interval_s=9e6),
        "/api/endpoints/{id}": _made(
            served, "/api/endpoints", name=unique("e"), url="http://127.0.0.1:1/", interval_s=9e6
        ),
        "/api/job-groups/{id}": _made(served, "/api/job-groups", mode="parallel", jobs=[{"type": "echo"}]),
        "/api/webhooks/{id}": _made(served, "/api/webhooks", url="http://127.0.0.1:1/"),
    }
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    until = time.monotonic() + FUZZ_S
    chosen = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    assert len(chosen) > 70
    chosen = [item for item in chosen if item.path not in ENDLESS + OUTBOUND and item.path not in CLOSING]
    tried = sum(_fuzz(operation, known, 0) for operation in chosen)
    for number in itertools.count(1):
        tried += sum(_fuzz(operation, known, number) for operation in chosen if time.monotonic() < until)
        if time.monotonic() >= until:
            break
    assert tried > 100


def _made(served: Served, path: str, **body: Any) -> str:
    answer = served.client.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def _fuzz(operation: Any, known: dict[str, str], number: int) -> int:
    """A few requests of one operation, half of them at something that exists; the same ones for the same number."""
    tried = 0
    held = next((value for prefix, value in known.items() if operation.path.startswith(prefix)), None)
    cases = operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE) | operation.as_strategy(
        generation_mode=schemathesis.GenerationMode.NEGATIVE
    )

    @seed(number)
    @settings(
        max_examples=3,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def fuzz(case: Any) -> None:
        nonlocal tried
        tried += 1
        if held is not None and tried % 2:
            case.path_parameters = {**(case.path_parameters or {}), "id": held}
        if operation.path.startswith("/api/direct"):
            case.path_parameters = {"type": "skip"}
        if operation.path == "/api/reservations" and isinstance(case.body, dict):
            case.body["wait_s"] = 0  # one that comes twice would wait for the other to be released
        case.call_and_validate(checks=CHECKS, timeout=20)

    fuzz()
    return tried
