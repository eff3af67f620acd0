"""What the OpenAPI document says of requests and answers is what the server does: defaults, nulls, forms, headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import jsonschema_rs
import pytest

from tests.api.serving import FAR, Served, problem_of, unique
from tests.waiting import eventually

SCHEMAS = "#/components/schemas/"
TOLD = ("ETag", "Location", "Retry-After", "WWW-Authenticate", "Allow", "Deprecation", "Sunset", "Link")
"""Headers that tell a client something."""
WHOLE_REFUSED = {"cron_or_interval", "missing_type"}
"""Codes of refusals of a null that its field alone could take."""
UNREACHABLE = "http://127.0.0.1:1/"
AGES_S = 9e6


@pytest.fixture(scope="module")
def document(served: Served) -> dict[str, Any]:
    body: dict[str, Any] = served.client.get("/openapi.json").json()
    return body


def made(served: Served, path: str, **body: Any) -> dict[str, Any]:
    answer = served.client.post(path, json=body)
    assert answer.status_code == 201, answer.text
    result: dict[str, Any] = answer.json()
    return result


def waiting_job(served: Served) -> str:
    return str(served.submit("echo", not_before=FAR)["id"])


def template(served: Served) -> str:
    return str(made(served, "/api/job-templates", name=unique("t"), type="echo")["id"])


def schedule(served: Served, **more: Any) -> str:
    return str(made(served, "/api/schedules", name=unique("s"), type="echo", interval_s=AGES_S, **more)["id"])


def endpoint(served: Served) -> str:
    return str(made(served, "/api/endpoints", name=unique("e"), url=UNREACHABLE, interval_s=AGES_S)["id"])


def webhook(served: Served) -> str:
    return str(made(served, "/api/webhooks", url=UNREACHABLE, events=["group.finished"])["id"])


CHANGED: dict[str, tuple[str, Callable[[Served], str]]] = {
    "JobChange": ("/api/jobs", waiting_job),
    "TemplateChange": ("/api/job-templates", template),
    "ScheduleChange": ("/api/schedules", schedule),
    "EndpointChange": ("/api/endpoints", endpoint),
    "WebhookChange": ("/api/webhooks", webhook),
}
"""What can be changed, and how one comes by it."""


@pytest.fixture(autouse=True)
def no_webhook_stays(served: Served) -> Iterator[None]:
    """Other tests share the server, and are not to be told of anything by these."""
    yield
    for item in served.client.get("/api/webhooks?limit=500").json()["items"]:
        if item["url"] == UNREACHABLE:
            served.client.delete(f"/api/webhooks/{item['id']}")


def cancelled_job(served: Served) -> str:
    job_id = waiting_job(served)
    served.client.post(f"/api/jobs/{job_id}/cancel")
    return job_id


def open_question(served: Served) -> str:
    job_id = served.submit("asks")["id"]

    def asked() -> str | None:
        items = served.client.get("/api/questions").json()["items"]
        return next((str(item["id"]) for item in items if item["job_id"] == job_id), None)

    return eventually(asked)


def borrowed_slot(served: Served) -> str:
    answer = served.client.post("/api/reservations", json={"resource": unique("lane"), "ttl_s": 60})
    return str(answer.raise_for_status().json()["id"])


def least_requests(served: Served) -> dict[str, tuple[str, str, Any]]:
    """For each request schema a method, a path, and no more than what is needed there."""
    first, second = waiting_job(served), waiting_job(served)
    nobody = {"filter": {"type": unique("nobody")}}
    adaptive, resource = schedule(served, adaptive=True), unique("resource")
    return {
        "JobRequest": ("POST", "/api/jobs", {"type": "echo"}),
        "JobBatchRequest": ("POST", "/api/jobs/batch", {"jobs": [{"type": "echo"}]}),
        "JobChange": ("PATCH", f"/api/jobs/{first}", {}),
        "MoveRequest": ("POST", f"/api/jobs/{first}/move", {"to": "top"}),
        "CancelRequest": ("POST", f"/api/jobs/{waiting_job(served)}/cancel", {}),
        "RetryRequest": ("POST", f"/api/jobs/{cancelled_job(served)}/retry", {}),
        "LimitChange": ("PUT", f"/api/limits/{unique('limit')}", {"resource": resource, "slots": 2}),
        "SignalRequest": ("POST", f"/api/jobs/{first}/signals/go", {}),
        "RerunRequest": ("POST", f"/api/jobs/{cancelled_job(served)}/rerun", {}),
        "AnswerRequest": ("POST", f"/api/questions/{open_question(served)}/answer", {"answer": "yes"}),
        "SlotRequest": ("POST", "/api/reservations", {"resource": unique("lane")}),
        "ExtendRequest": ("POST", f"/api/reservations/{borrowed_slot(served)}/extend", {}),
        "SeenRequest": ("POST", "/api/attention/seen", {}),
        "BulkCancelRequest": ("POST", "/api/jobs/cancel", nobody),
        "BulkRetryRequest": ("POST", "/api/job-runs/retry", nobody),
        "ReorderRequest": ("POST", "/api/queue/reorder", {"job_ids": [second, first]}),
        "PauseRequest": ("POST", "/api/queue/pause", {"resource": resource}),
        "ResumeRequest": ("POST", "/api/queue/resume", {"resource": resource}),
        "GroupRequest": ("POST", "/api/job-groups", {"mode": "parallel", "jobs": [{"type": "echo"}]}),
        "TemplateRequest": ("POST", "/api/job-templates", {"name": unique("t"), "type": "echo"}),
        "TemplateChange": ("PATCH", f"/api/job-templates/{template(served)}", {}),
        "ScheduleRequest": ("POST", "/api/schedules", {"name": unique("s"), "type": "echo", "interval_s": AGES_S}),
        "ScheduleChange": ("PATCH", f"/api/schedules/{adaptive}", {}),
        "SchedulePauseRequest": ("POST", f"/api/schedules/{adaptive}/pause", {}),
        "BulkPauseRequest": ("POST", "/api/schedules/pause", {"ids": [schedule(served)]}),
        "BulkResumeRequest": ("POST", "/api/schedules/resume", {"ids": [adaptive]}),
        "HintRequest": ("POST", f"/api/schedules/{adaptive}/hints", {"interval_s": AGES_S}),
        "PreviewRequest": ("POST", "/api/schedules/preview", {"cron": "@daily"}),
        "EndpointRequest": (
            "POST",
            "/api/endpoints",
            {"name": unique("e"), "url": UNREACHABLE, "interval_s": AGES_S},
        ),
        "EndpointChange": ("PATCH", f"/api/endpoints/{endpoint(served)}", {}),
        "WebhookRequest": ("POST", "/api/webhooks", {"url": UNREACHABLE, "events": ["group.finished"]}),
        "WebhookChange": ("PATCH", f"/api/webhooks/{webhook(served)}", {}),
        "RotateRequest": ("POST", f"/api/webhooks/{webhook(served)}/rotate", {}),
        "DirectRequest": ("POST", "/api/direct/echo", {}),
        "MappedDirectRequest": ("POST", "/story/generate", {}),
        "CompatibilityTrigger": ("POST", "/jobs/echo/trigger", {}),
        "CompatibilityBatch": ("POST", "/jobs/batch/trigger", {"jobs": [{"type": "echo"}]}),
    }


def request_schemas(document: dict[str, Any]) -> set[str]:
    return {
        operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].removeprefix(SCHEMAS)
        for methods in document["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    }


def filled(document: dict[str, Any], schema: dict[str, Any], value: Any) -> Any:
    """The value with every default that the document names for what is missing in it, all the way down."""
    forms = [schema, *schema.get("anyOf", ())]
    for form in forms:
        result = document["components"]["schemas"][form["$ref"].removeprefix(SCHEMAS)] if "$ref" in form else form
        if isinstance(value, dict) and "properties" in result:
            defaults = {name: of["default"] for name, of in result["properties"].items() if "default" in of}
            return {
                name: filled(document, result["properties"].get(name, {}), each)
                for name, each in {**defaults, **value}.items()
            }
        if isinstance(value, list) and "items" in result:
            return [filled(document, result["items"], item) for item in value]
    return value


@pytest.mark.rule("API-01")
def test_the_documented_defaults_are_accepted_when_they_are_sent(served: Served, document: dict[str, Any]) -> None:
    least = least_requests(served)
    # The first key would lock the other tests of this server out.
    assert request_schemas(document) == least.keys() | {"LoginRequest", "KeyRequest"}
    for name, (method, path, body) in least.items():
        sent = filled(document, {"$ref": SCHEMAS + name}, body)
        answer = served.client.request(method, path, json=sent)
        assert answer.status_code < 300, (name, sent, answer.text)


@pytest.mark.rule("API-01", "GOV-09")
def test_the_documented_defaults_of_a_schedule_go_with_being_adaptive(served: Served, document: dict[str, Any]) -> None:
    body = {"name": unique("s"), "type": "echo", "interval_s": AGES_S, "adaptive": True}
    sent = filled(document, {"$ref": SCHEMAS + "ScheduleRequest"}, body)
    assert served.client.post("/api/schedules", json=sent).json()["overlap"] == "skip"


@pytest.mark.rule("API-02")
@pytest.mark.parametrize("name", [*CHANGED, "RetryPolicyRequest"])
def test_no_change_has_a_default_that_would_reset_what_is_left_out(document: dict[str, Any], name: str) -> None:
    schema = document["components"]["schemas"][name]
    assert [field for field, of in schema["properties"].items() if "default" in of] == []
    assert "required" not in schema


def test_all_changes_are_looked_at(document: dict[str, Any]) -> None:
    patched = {
        methods["patch"]["requestBody"]["content"]["application/json"]["schema"]["$ref"].removeprefix(SCHEMAS)
        for methods in document["paths"].values()
        if "patch" in methods
    }
    assert patched == CHANGED.keys()


@pytest.mark.rule("API-01", "API-02")
@pytest.mark.parametrize("name", CHANGED)
def test_null_is_taken_exactly_where_the_document_allows_it(
    served: Served, document: dict[str, Any], name: str
) -> None:
    prefix, make = CHANGED[name]
    for field, of in document["components"]["schemas"][name]["properties"].items():
        answer = served.client.patch(f"{prefix}/{make(served)}", json={field: None})
        if allows_null(of):
            is_taken = answer.status_code == 200 or answer.json()["code"] in WHOLE_REFUSED
            assert is_taken, (name, field, answer.text)
        else:
            assert problem_of(answer, 422)["field"] == field


def allows_null(schema: dict[str, Any]) -> bool:
    says_nothing = not schema.keys() & {"type", "enum", "const", "$ref", "anyOf"}
    return says_nothing or {"type": "null"} in schema.get("anyOf", ())


@pytest.mark.rule("API-01")
def test_every_request_is_shown_with_an_example_that_fits_its_own_schema(document: dict[str, Any]) -> None:
    for name in request_schemas(document) | {"JobFilter", "RunFilter", "RetryPolicyRequest"}:
        examples = document["components"]["schemas"][name].get("examples", [])
        assert examples, name
        whole = {"$ref": SCHEMAS + name, "components": document["components"]}
        for example in examples:
            jsonschema_rs.Draft202012Validator(whole).validate(example)


@pytest.mark.rule("API-01", "API-04")
def test_a_stream_documents_both_of_its_forms(served: Served, document: dict[str, Any]) -> None:
    job_id = served.run_job("echo")["id"]
    as_json = {"Accept": "application/json"}
    asked: dict[str, list[tuple[str, dict[str, str]]]] = {
        "/api/events": [("/api/events?after=0", as_json), ("/api/events?after=0", {})],
        "/api/jobs/{id}/logs": [(f"/api/jobs/{job_id}/logs", {}), (f"/api/jobs/{job_id}/logs?follow=true", {})],
    }
    for path, requests in asked.items():
        seen = set()
        for url, headers in requests:
            with served.client.stream("GET", url, headers=headers) as answer:
                assert answer.status_code == 200
                seen.add(answer.headers["content-type"].partition(";")[0])
        documented = document["paths"][path]["get"]["responses"]["200"]["content"]
        assert documented.keys() == seen == {"application/json", "text/event-stream"}, path


@pytest.mark.rule("API-01")
@pytest.mark.parametrize(
    ("prefix", "make"),
    [("/api/job-templates", template), ("/api/schedules", schedule), ("/api/endpoints", endpoint)],
)
def test_what_is_found_by_its_name_is_documented_so(
    served: Served, document: dict[str, Any], prefix: str, make: Any
) -> None:
    body = served.client.get(f"{prefix}/{make(served)}").json()
    assert served.client.get(f"{prefix}/{body['name']}").json()["id"] == body["id"]
    steps = {path: methods for path, methods in document["paths"].items() if path.startswith(prefix + "/{id}")}
    for path, methods in steps.items():
        for operation in methods.values():
            (schema,) = [parameter["schema"] for parameter in operation["parameters"] if parameter["in"] == "path"]
            for reference in (body["id"], body["name"]):
                jsonschema_rs.Draft202012Validator(schema, validate_formats=True).validate(reference)
            assert "format" not in schema, path


@pytest.mark.rule("API-01")
def test_the_headers_of_answers_are_documented_where_they_are_sent_and_sent_where_they_are_documented(
    served: Served, document: dict[str, Any]
) -> None:
    seen: set[str] = set()
    for method, path, answer in answers(served):
        output = operation_of(document, method, path)["responses"][str(answer.status_code)].get("headers", {})
        sent = {name for name in TOLD if name in answer.headers}
        seen |= sent
        assert sent <= output.keys(), (method, path, answer.status_code)
        assert {name for name, of in output.items() if of.get("required")} <= sent, (method, path, answer.status_code)
    assert {"ETag", "Location", "Deprecation", "Sunset", "Link", "Allow"} <= seen


def answers(served: Served) -> Iterator[tuple[str, str, httpx2.Response]]:
    """An answer to a request of every schema, and to what makes, finds and ends things without a body."""
    for method, path, body in least_requests(served).values():
        yield method, path, served.client.request(method, path, json=body)
    for prefix, make in CHANGED.values():
        path = f"{prefix}/{make(served)}"
        yield "GET", path, served.client.get(path)
        if prefix in ("/api/schedules", "/api/endpoints"):
            for step in ("enable", "disable", "resume", "trigger"):
                yield "POST", f"{path}/{step}", served.client.post(f"{path}/{step}")
        if prefix != "/api/jobs":
            yield "DELETE", path, served.client.delete(path)
    key = unique("key")
    for _ in range(2):
        body = {"type": "echo", "idempotency_key": key}
        yield "POST", "/api/jobs", served.client.post("/api/jobs", json=body)
    failed = served.run_job("fail")
    for path in (f"/api/jobs/{failed['id']}/retry", f"/api/job-runs/{failed['run']['id']}/retry"):
        yield "POST", path, served.client.post(path)
    yield "GET", f"/jobs/{failed['id']}", served.client.get(f"/jobs/{failed['id']}")
    yield "POST", "/logout", served.client.post("/logout")
    yield "GET", "/api/stats", served.client.put("/api/stats")


def operation_of(document: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    """The operation that serves a path, the one with the fewest parameters first."""
    parts = path.split("/")

    def fits(pattern: str) -> bool:
        words = pattern.split("/")
        pairs = zip(words, parts, strict=False)
        return len(words) == len(parts) and all(word == part or word.startswith("{") for word, part in pairs)

    fitting = [each for each, methods in document["paths"].items() if fits(each) and method.lower() in methods]
    result: dict[str, Any] = document["paths"][min(fitting, key=lambda item: item.count("{"))][method.lower()]
    return result


@pytest.mark.rule("API-01")
def test_every_route_documents_when_to_come_back_after_a_503(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert "Retry-After" in operation["responses"]["503"]["headers"], path
