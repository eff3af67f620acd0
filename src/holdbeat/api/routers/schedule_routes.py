"""The routes that Schedules and Endpoints have in common: made, found, edited, steered, explained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import CURSOR, IF_MATCH, LIMIT, Parameter, Routes
from holdbeat.api.schemas.schedules import (
    BulkResumeRequest,
    HintRequest,
    OccurrencePage,
    Preview,
    SchedulePauseRequest,
    TriggeredJob,
)
from holdbeat.api.schemas.schedules import ScheduleExplanation as Explanation
from holdbeat.api.submitting import needs_admin
from holdbeat.domain.api_key import Scope
from holdbeat.domain.errors import Invalid
from holdbeat.domain.occurrence import OccurrenceStatus
from holdbeat.domain.schedule import Schedule
from holdbeat.domain.views import job_json, occurrence_json, preview_json
from holdbeat.handlers.shell import SHELL
from holdbeat.observe.explain import explain_schedule
from holdbeat.store.queue.templates import find_template
from holdbeat.store.schedules import schedules as verbs
from holdbeat.store.schedules.manual_fire import trigger_schedule
from holdbeat.store.schedules.schedule_reports import list_schedules, occurrences_of, preview_schedule
from holdbeat.store.transaction import Transaction

_FLAG = {"type": "boolean"}
_TEXT = {"type": "string", "minLength": 1, "maxLength": 500}
FLAGS = ("enabled", "adaptive", "paused")
MOST_RESUMED = 10_000


@dataclass(frozen=True, slots=True)
class Kind:
    """What tells Endpoints from other Schedules: their paths, their form, their shapes."""

    noun: str
    path: str
    is_endpoint: bool
    shown: Callable[[Schedule], dict[str, Any]]
    model: type[BaseModel]
    page: type[BaseModel]
    request: type[BaseModel]
    change: type[BaseModel]

    def answer(self, schedule: Schedule, status: int = 200) -> Response:
        headers = {"ETag": f'"{schedule.version}"'}
        if status == 201:
            headers["Location"] = f"{self.path}/{schedule.id}"
        return answer(self.shown(schedule), status, headers)


def add_routes(routes: Routes, kind: Kind) -> None:
    """Declares all common routes for one kind."""
    _add_record(routes, kind)
    _add_steps(routes, kind)
    _add_reports(routes, kind)


def _named(name: str, sentence: str) -> Callable[[Any], Any]:
    def named(function: Any) -> Any:
        function.__name__, function.__doc__ = name, sentence
        return function

    return named


# --- made, found, edited ------------------------------------------------------------------------------------


def _add_record(routes: Routes, kind: Kind) -> None:
    noun = kind.noun
    filters = [Parameter(name, f"Only those that are {name}, or not.", _FLAG) for name in FLAGS]
    if not kind.is_endpoint:
        filters += [Parameter(name, f"Only those with this {name}.", _TEXT) for name in ("type", "template_id")]

    @routes.post(kind.path, body=kind.request, answers={201: kind.model}, refuses=(409,))
    @_named(f"create_{noun}", f"Make a {noun}.")
    async def create(call: ApiRequest) -> Response:
        given = await call.object()
        if kind.is_endpoint:
            call.service.check_target(given.get("url"))
        is_admin = call.scope.covers(Scope.ADMIN)
        return kind.answer(await call.service.store.write(_create, given, kind.is_endpoint, is_admin), 201)

    order = Parameter(
        "order", "newest first, or those that run next first.", {"type": "string", "enum": ["newest", "next_run"]}
    )

    @routes.get(kind.path, answers={200: kind.page}, parameters=(*filters, order, LIMIT, CURSOR))
    @_named(f"list_{noun}s", f"List {noun}s, the newest first unless `order` says otherwise.")
    async def list_(call: ApiRequest) -> Response:
        wanted: dict[str, Any] = {name: call.flag(name) for name in FLAGS if call.text(name) is not None}
        wanted["order"] = call.text("order")
        if not kind.is_endpoint:
            wanted |= {"type": call.text("type"), "template_id": call.text("template_id")}
        page = await call.service.store.read(
            list_schedules, wanted, endpoint=kind.is_endpoint, limit=call.limit, cursor=call.cursor
        )
        return answer({"items": [kind.shown(each) for each in page.items], "next_cursor": page.next_cursor})

    @routes.get(f"{kind.path}/{{id}}", answers={200: kind.model})
    @_named(f"get_{noun}", f"Read a {noun} by its id or its name.")
    async def get(call: ApiRequest) -> Response:
        found = await call.service.store.read(verbs.get_schedule, call.path("id"), endpoint=kind.is_endpoint)
        return kind.answer(found)

    @routes.patch(
        f"{kind.path}/{{id}}",
        body=kind.change,
        answers={200: kind.model},
        refuses=(409, 412),
        parameters=(IF_MATCH,),
    )
    @_named(f"update_{noun}", f"Change a {noun}; it is planned anew at once. Jobs that it made stay as they are.")
    async def update(call: ApiRequest) -> Response:
        reference, version = call.path("id"), call.expected_version()
        changes = await call.object()
        if kind.is_endpoint:
            call.service.check_target(changes.get("url"))
        is_admin = call.scope.covers(Scope.ADMIN)
        return kind.answer(
            await call.service.store.write(_change, reference, changes, version, kind.is_endpoint, is_admin)
        )

    @routes.delete(f"{kind.path}/{{id}}", answers={204: None}, refuses=(412,), parameters=(IF_MATCH,))
    @_named(f"delete_{noun}", f"Delete a {noun}; its jobs and the record of its due times stay.")
    async def delete(call: ApiRequest) -> Response:
        reference, version = call.path("id"), call.expected_version()
        is_admin = call.scope.covers(Scope.ADMIN)
        await call.service.store.write(_delete, reference, version, kind.is_endpoint, is_admin)
        return Response(status_code=204)


def _create(tx: Transaction, given: dict[str, Any], is_endpoint: bool, is_admin: bool) -> Schedule:
    _guard_shell(tx, is_admin, given)
    return verbs.create_schedule(tx, given, endpoint=is_endpoint)


def _change(
    tx: Transaction, reference: str, changes: dict[str, Any], version: int | None, is_endpoint: bool, is_admin: bool
) -> Schedule:
    present = verbs.get_schedule(tx, reference, endpoint=is_endpoint, locked=True)
    _guard_shell(tx, is_admin, {"type": present.type, "template": present.template_id})
    _guard_shell(tx, is_admin, changes)
    return verbs.patch_schedule(tx, reference, changes, version=version, endpoint=is_endpoint)


def _delete(tx: Transaction, reference: str, version: int | None, is_endpoint: bool, is_admin: bool) -> None:
    present = verbs.get_schedule(tx, reference, endpoint=is_endpoint, locked=True)
    _guard_shell(tx, is_admin, {"type": present.type, "template": present.template_id})
    verbs.delete_schedule(tx, reference, version=version, endpoint=is_endpoint)


def _guard_shell(tx: Transaction, is_admin: bool, given: dict[str, Any]) -> None:
    """Refuses a shell schedule of somebody without an admin key (SEC-05)."""
    if is_admin:
        return
    is_shell = given.get("type") == SHELL
    for name in ("template", "template_id"):
        reference = given.get(name)
        template = find_template(tx, reference) if isinstance(reference, str) else None
        is_shell = is_shell or (template is not None and template.type == SHELL)
    if is_shell:
        raise needs_admin("Making or changing a shell schedule")


# --- steered ------------------------------------------------------------------------------------------------


def _add_steps(routes: Routes, kind: Kind) -> None:
    noun, path = kind.noun, f"{kind.path}/{{id}}"

    def add_plain(step: str, verb: Callable[..., Schedule], name: str, sentence: str) -> None:
        @routes.post(f"{path}/{step}", answers={200: kind.model}, refuses=(400, 409, 413))
        @_named(name, sentence)
        async def take(call: ApiRequest) -> Response:
            reference = call.path("id")
            await call.fields((), may_be_empty=True)
            return kind.answer(await call.service.store.write(verb, reference, endpoint=kind.is_endpoint))

    add_plain("enable", verbs.enable_schedule, f"enable_{noun}", f"Let a {noun} fire again, from now on.")
    add_plain("disable", verbs.disable_schedule, f"disable_{noun}", f"Let a {noun} fire no more.")
    add_plain("resume", verbs.resume_schedule, f"resume_{noun}", f"End the pause of a {noun}.")
    add_plain(
        "reset-failures", verbs.reset_failure_count, f"reset_{noun}_failures", f"End the backoff of an adaptive {noun}."
    )

    @routes.post(
        f"{path}/pause", body=SchedulePauseRequest, body_optional=True, answers={200: kind.model}, refuses=(409,)
    )
    @_named(f"pause_{noun}", f"Hold a {noun} until an instant, or until somebody resumes it.")
    async def pause(call: ApiRequest) -> Response:
        reference = call.path("id")
        given = await call.fields(("until", "reason"), may_be_empty=True)
        until, reason = given.get("until"), given.get("reason")
        verb = verbs.pause_schedule
        return kind.answer(await call.service.store.write(verb, reference, until, reason, endpoint=kind.is_endpoint))

    @routes.post(
        f"{kind.path}/resume", body=BulkResumeRequest, body_optional=True, answers={200: kind.page}, refuses=(404,)
    )
    @_named(f"resume_{noun}s", f"End the pauses of many {noun}s, spread over a minute.")
    async def resume_many(call: ApiRequest) -> Response:
        given = await call.fields(("ids",), may_be_empty=True)
        ids = given.get("ids")
        if ids is not None and (
            not isinstance(ids, list) or len(ids) > MOST_RESUMED or not all(isinstance(each, str) for each in ids)
        ):
            raise Invalid("ids must be a list of ids.", code="invalid_id", field="ids")
        found = await call.service.store.write(verbs.resume_schedules, ids, endpoint=kind.is_endpoint)
        return answer({"items": [kind.shown(each) for each in found], "next_cursor": None})

    @routes.post(f"{path}/hints", body=HintRequest, answers={200: kind.model}, refuses=(409,))
    @_named(f"hint_{noun}", f"Ask an adaptive {noun} for another pace, for a run at a time, or both.")
    async def hint(call: ApiRequest) -> Response:
        reference = call.path("id")
        given = dict(await call.fields(("interval_s", "next_run_at", "ttl_s", "reason")))
        return kind.answer(
            await call.service.store.write(verbs.set_hints, reference, endpoint=kind.is_endpoint, **given)
        )

    @routes.delete(f"{path}/hints", answers={200: kind.model}, refuses=(409,))
    @_named(f"clear_{noun}_hints", f"Drop the hints of an adaptive {noun}.")
    async def clear(call: ApiRequest) -> Response:
        verb = verbs.clear_hints
        return kind.answer(await call.service.store.write(verb, call.path("id"), endpoint=kind.is_endpoint))

    @routes.post(f"{path}/trigger", answers={201: TriggeredJob}, refuses=(400, 409, 413))
    @_named(f"trigger_{noun}", f"Fire a {noun} now, also while it is paused or disabled.")
    async def trigger(call: ApiRequest) -> Response:
        reference = call.path("id")
        await call.fields((), may_be_empty=True)
        occurrence, job = await call.service.store.write(trigger_schedule, reference, endpoint=kind.is_endpoint)
        return answer(
            {**job_json(job), "occurrence": occurrence_json(occurrence)}, 201, {"Location": f"/api/jobs/{job.id}"}
        )


# --- explained ----------------------------------------------------------------------------------------------


def _add_reports(routes: Routes, kind: Kind) -> None:
    noun, path = kind.noun, f"{kind.path}/{{id}}"

    @routes.get(
        f"{path}/occurrences",
        answers={200: OccurrencePage},
        parameters=(
            Parameter("status", "Only these outcomes.", {"enum": list(OccurrenceStatus)}, is_multiple=True),
            LIMIT,
            CURSOR,
        ),
    )
    @_named(f"list_{noun}_occurrences", f"List the due times of a {noun} and what became of them, the latest first.")
    async def occurrences(call: ApiRequest) -> Response:
        page = await call.service.store.read(
            occurrences_of,
            call.path("id"),
            {"status": call.choices("status", OccurrenceStatus) or None},
            endpoint=kind.is_endpoint,
            limit=call.limit,
            cursor=call.cursor,
        )
        return answer({"items": [occurrence_json(each) for each in page.items], "next_cursor": page.next_cursor})

    @routes.get(f"{path}/explain", answers={200: Explanation})
    @_named(f"explain_{noun}", f"Say why a {noun} runs when it runs, or why it does not.")
    async def explain(call: ApiRequest) -> Response:
        return answer(await call.service.store.read(explain_schedule, call.path("id"), endpoint=kind.is_endpoint))

    @routes.get(
        f"{path}/preview",
        answers={200: Preview},
        parameters=(Parameter("n", "How many.", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 10}),),
    )
    @_named(
        f"preview_{noun}", f"Show the next due times at which a {noun} fires, from its plan on, gaps and folds marked."
    )
    async def preview(call: ApiRequest) -> Response:
        n = call.whole("n", 10, 1, 1000)
        fires = await call.service.store.read(preview_schedule, call.path("id"), n, endpoint=kind.is_endpoint)
        return answer(preview_json(fires))
