"""The calls by which every operation is compared over HTTP and on a store, and how their outcomes are compared."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from holdbeat.client import Client
from tests.api.serving import FAR, open_gate
from tests.operations.world import (
    LATER_GROUP,
    NO_SUCH,
    UNKNOWN,
    Call,
    World,
    ask,
    id_of,
    keep,
    method_of,
    on,
    run,
    submit,
    until_ended,
)
from tests.waiting import eventually


def _answer_a_question(world: World) -> Any:
    job_id = world.backend.submit_job({"type": "asks"})["id"]
    question = eventually(
        lambda: next((item for item in world.backend.list_questions()["items"] if item["job_id"] == job_id), None)
    )
    answered = world.backend.answer_question(question["id"], "yes")
    # Who answered is another one on a store than over HTTP, but is on record.
    return {**answered, "answered_by": answered["answered_by"] is not None}


def cases() -> list[tuple[str, Call]]:
    """The calls in their order, each with the operation that it is about."""
    return [
        *_jobs(),
        *_runs(),
        *_queue(),
        *_groups(),
        *_limits(),
        *_templates(),
        *_schedules(),
        *_webhooks(),
        *_direct(),
        *_system(),
        *_keys(),
    ]


def _keys() -> list[tuple[str, Call]]:
    """The last calls: from the first key on the server asks for one."""

    def create(world: World) -> Any:
        key = world.backend.create_key("first", scope="admin", expires_s=3600)
        if isinstance(world.backend, Client):
            world.backend.close()
            world.backend = Client(world.backend.url, key=key["key"])
        return {**key, "prefix": key["prefix"][:3], "key": key["key"][:3]}

    def listed(world: World) -> Any:
        keys = world.backend.list_keys()["items"]
        return [{**key, "prefix": key["prefix"][:3], "last_used_at": None} for key in keys]

    def revoked(world: World) -> Any:
        second = world.backend.create_key("second", scope="read")
        answer = world.backend.revoke_key(second["id"])
        return {**answer, "prefix": answer["prefix"][:3]}

    return [
        ("create_key", ask("create_key", "")),
        ("create_key", ask("create_key", "mine", scope="root")),
        ("create_key", ask("create_key", "mine", expires_s=-1)),
        ("create_key", create),
        ("revoke_key", revoked),
        ("revoke_key", ask("revoke_key", UNKNOWN)),
        ("list_keys", listed),
    ]


def _jobs() -> list[tuple[str, Call]]:
    return [
        ("submit_job", keep("later", submit("echo", params={"x": 2}, not_before=FAR, labels={"a": "b"}))),
        ("submit_job", submit("echo", idempotency_key="same", not_before=FAR)),
        ("submit_job", submit("echo", idempotency_key="same", not_before=FAR)),
        ("submit_job", submit("echo", idempotency_key="same", not_before=FAR, priority=9)),
        ("submit_job", submit("ecko")),
        ("submit_job", submit("echo", colour=1)),
        ("submit_job", submit("echo", params={"x": "text"})),
        ("submit_jobs", ask("submit_jobs", [{"type": "echo", "not_before": FAR, "labels": {"batch": "1"}}] * 2)),
        ("submit_jobs", ask("submit_jobs", [{"type": "echo"}, {"type": "ecko"}])),
        ("submit_jobs", ask("submit_jobs", [])),
        ("list_jobs", ask("list_jobs", label="a=b", status="QUEUED", limit=5)),
        ("list_jobs", ask("list_jobs", status=["QUEUED", "RUNNING"], type="echo")),
        ("list_jobs", ask("list_jobs", status="queued")),
        ("list_jobs", ask("list_jobs", order="oldest", limit=3)),
        ("list_jobs", ask("list_jobs", order="sideways")),
        ("list_jobs", ask("list_jobs", order="oldest", q="echo")),
        ("list_jobs", ask("list_jobs", cursor=NO_SUCH)),
        ("list_jobs", ask("list_jobs", label="nosign")),
        ("list_jobs", ask("list_jobs", limit=501)),
        ("get_job", on("later", "get_job")),
        ("get_job", ask("get_job", NO_SUCH)),
        ("get_job", ask("get_job", UNKNOWN)),
        ("update_job", on("later", "update_job", {"priority": 7, "params": {"x": 3}})),
        ("update_job", on("later", "update_job", {"priority": 101})),
        ("update_job", on("later", "update_job", {"prioriti": 1})),
        ("update_job", on("later", "update_job", {"params": {"x": 1, "headers": {"Authorization": "[redacted]"}}})),
        ("move_job", on("later", "move_job", to="top")),
        ("move_job", on("later", "move_job", to="sideways")),
        ("move_job", on("later", "move_job", before=NO_SUCH)),
        ("explain_job", on("later", "explain_job")),
        ("explain_job", ask("explain_job", UNKNOWN)),
        ("wait_job", keep("ended", run("draw"))),
        ("job_events", on("ended", "job_events")),
        ("job_events", on("ended", "job_events", limit=2)),
        ("job_events", on("ended", "job_events", limit=0)),
        ("get_logs", on("ended", "get_logs")),
        ("get_logs", on("ended", "get_logs", after=1, limit=1)),
        ("get_logs", on("ended", "get_logs", cursor="x")),
        ("get_logs", ask("get_logs", UNKNOWN)),
        ("get_chunks", on("ended", "get_chunks")),
        ("get_chunks", ask("get_chunks", NO_SUCH)),
        ("follow_chunks", lambda world: list(world.backend.follow_chunks(id_of("ended")(world)))),
        ("follow_logs", lambda world: list(world.backend.follow_logs(id_of("ended")(world), after=1))),
        ("send_signal", on("later", "send_signal", "go", {"by": "ann"})),
        ("send_signal", on("later", "send_signal", "go/on")),
        ("send_signal", on("later", "send_signal", " ")),
        ("send_signal", on("ended", "send_signal", "go")),
        ("send_signal", ask("send_signal", UNKNOWN, "go")),
        ("list_steps", on("later", "list_steps")),
        ("list_steps", ask("list_steps", UNKNOWN)),
        ("submit_job", lambda world: submit("echo", after=[{"job_id": id_of("later")(world), "as": "x"}])(world)),
        ("submit_job", submit("echo", after=[{"job_id": UNKNOWN}])),
        ("submit_job", submit("echo", on_upstream="skip")),
        ("submit_job", submit("echo", after=[{"job": UNKNOWN}])),
        (
            "submit_jobs",
            ask(
                "submit_jobs",
                [{"type": "echo", "ref": "a", "not_before": FAR}, {"type": "echo", "after": [{"ref": "a"}]}],
            ),
        ),
        ("submit_jobs", ask("submit_jobs", [{"type": "echo", "after": [{"ref": "a"}]}, {"type": "echo", "ref": "a"}])),
        ("submit_job", submit("echo", unique_key="u", not_before=FAR)),
        ("submit_job", submit("echo", unique_key="u", not_before=FAR)),
        ("submit_job", submit("echo", unique_key="u", not_before=FAR, on_duplicate="refuse")),
        ("submit_job", submit("echo", unique_key="u", on_duplicate="replace", params={"x": 7})),
        ("submit_job", submit("echo", on_duplicate="replace")),
        ("submit_job", submit("echo", not_before=FAR, expires_in_s=1)),
        ("list_jobs", lambda world: world.backend.list_jobs(parent_id=id_of("later")(world))),
        ("rerun_job", until_ended(on("ended", "rerun_job"))),
        ("rerun_job", on("ended", "rerun_job", from_step="nothing")),
        ("rerun_job", on("later", "rerun_job")),
        ("rerun_job", ask("rerun_job", UNKNOWN)),
        ("list_questions", ask("list_questions")),
        ("list_questions", ask("list_questions", limit=0)),
        ("answer_question", _answer_a_question),
        ("answer_question", ask("answer_question", UNKNOWN, "yes")),
        ("answer_question", ask("answer_question", NO_SUCH, "yes")),
        ("get_graph", on("later", "get_graph")),
        ("get_graph", ask("get_graph", UNKNOWN)),
        ("cancel_job", on("later", "cancel_job", "not needed")),
        ("cancel_job", on("later", "cancel_job", "not needed")),
        ("cancel_job", on("later", "cancel_job", "two\nlines")),
        ("cancel_jobs", ask("cancel_jobs", {"label": "batch=1"}, dry_run=True)),
        ("cancel_jobs", ask("cancel_jobs", {"label": "batch=1"}, reason="all")),
        ("cancel_jobs", ask("cancel_jobs", {})),
        ("cancel_jobs", ask("cancel_jobs", {"colour": 1})),
        ("retry_job", on("later", "retry_job", from_step="crawl")),
        ("retry_job", on("later", "retry_job", steps="some")),
        ("retry_job", on("later", "retry_job", steps="fresh")),
        ("retry_job", on("later", "retry_job")),
        ("retry_job", on("ended", "retry_job")),
    ]


def _runs() -> list[tuple[str, Call]]:
    def run_of(name: str, method: str, *args: Any) -> Call:
        return lambda world: method_of(world, method)(world.known[name]["run"]["id"], *args)

    return [
        ("wait_job", keep("failed", run("fail"))),
        ("list_job_runs", ask("list_job_runs", type="fail", status="FAILED", error_kind=["error", "crash", "timeout"])),
        ("list_job_runs", ask("list_job_runs", status="failed")),
        ("list_job_runs", ask("list_job_runs", error_kind="none")),
        ("get_job_run", run_of("failed", "get_job_run")),
        ("get_job_run", ask("get_job_run", UNKNOWN)),
        ("get_artifact", run_of("ended", "get_artifact", "picture.bin")),
        ("get_artifact", run_of("ended", "get_artifact", "result")),
        ("get_artifact", run_of("ended", "get_artifact", "nothing")),
        ("retry_job_runs", ask("retry_job_runs", {"type": "fail"}, dry_run=True)),
        ("retry_job_runs", ask("retry_job_runs", {"colour": 1})),
        ("retry_job_run", until_ended(run_of("failed", "retry_job_run"))),
        ("retry_job_run", run_of("ended", "retry_job_run")),
    ]


def _queue() -> list[tuple[str, Call]]:
    def reordered(world: World) -> Any:
        ids = [submit("echo", not_before=FAR, priority=42)(world)["id"] for _ in range(2)]
        return world.backend.reorder_queue(ids[::-1])

    return [
        ("reorder_queue", reordered),
        ("reorder_queue", ask("reorder_queue", [UNKNOWN])),
        ("reorder_queue", ask("reorder_queue", [NO_SUCH])),
        ("pause_queue", ask("pause_queue", "narrow", reason="new model")),
        ("pause_queue", ask("pause_queue", "narrow", reason="two\nlines")),
        ("get_queue", ask("get_queue", resource="default")),
        ("get_queue", ask("get_queue", cursor=NO_SUCH)),
        ("resume_queue", ask("resume_queue", "narrow")),
        ("resume_queue", ask("resume_queue", "a\nb")),
    ]


def _groups() -> list[tuple[str, Call]]:
    members = [{"type": "echo", "not_before": FAR}, {"type": "echo", "not_before": FAR}]
    return [
        ("create_group", ask("create_group", {**LATER_GROUP, "then": {"type": "echo"}, "then_when": "always"})),
        ("create_group", ask("create_group", {**LATER_GROUP, "then": {"type": "ecko"}})),
        ("create_group", ask("create_group", {**LATER_GROUP, "then_when": "always"})),
        ("create_group", keep("group", ask("create_group", {"name": "g", "mode": "sequential", "jobs": members}))),
        ("create_group", ask("create_group", {"mode": "zigzag", "jobs": members})),
        ("create_group", ask("create_group", {"mode": "parallel"})),
        ("create_group", ask("create_group", {"mode": "parallel", "job": members})),
        ("create_group", ask("create_group", {"mode": "parallel", "jobs": 1})),
        ("create_group", ask("create_group", {"mode": "parallel", "jobs": [1]})),
        ("list_groups", ask("list_groups", name="g", status=["QUEUED"])),
        ("list_groups", ask("list_groups", status="queued")),
        ("get_group", on("group", "get_group")),
        ("get_group", ask("get_group", NO_SUCH)),
        ("cancel_group", on("group", "cancel_group", "enough")),
        ("cancel_group", on("group", "cancel_group", "enough")),
        ("cancel_group", on("group", "cancel_group", "")),
    ]


def _limits() -> list[tuple[str, Call]]:
    return [
        ("set_limit", ask("set_limit", "api", {"resource": "api", "slots": 3, "rate": {"count": 60, "per_s": 60}})),
        ("set_limit", ask("set_limit", "api", {"slots": 4, "per_partition": True})),
        ("set_limit", ask("set_limit", "api", {"slots": "many"})),
        ("set_limit", ask("set_limit", "api", {"slot": 1})),
        ("list_limits", ask("list_limits")),
        ("reset_limit", ask("reset_limit", "api")),
        ("reset_limit", ask("reset_limit", NO_SUCH)),
    ]


def _templates() -> list[tuple[str, Call]]:
    request = {"name": "t", "type": "http", "default_params": {"url": "http://x/", "headers": {"Authorization": "s"}}}
    kept = {"default_params": {"url": "http://y/", "headers": {"Authorization": "[redacted]"}}}
    return [
        ("create_template", keep("template", ask("create_template", request))),
        ("create_template", ask("create_template", request)),
        ("create_template", ask("create_template", {"name": "u"})),
        ("create_template", ask("create_template", {"name": "u", "type": "echo", "colour": 1})),
        ("list_templates", ask("list_templates", type="http")),
        ("list_templates", ask("list_templates", archived="maybe")),
        ("get_template", ask("get_template", "t")),
        ("get_template", ask("get_template", NO_SUCH)),
        ("update_template", on("template", "update_template", kept, version=1)),
        ("update_template", on("template", "update_template", {"priority": 3}, version=1)),
        ("update_template", on("template", "update_template", {"colour": 3})),
        ("archive_template", on("template", "archive_template", version=9)),
        ("archive_template", on("template", "archive_template")),
        ("archive_template", on("template", "archive_template")),
    ]


def _triggered(world: World, kind: str, name: str) -> Any:
    """The job of a trigger. It has ended before the next call, which would otherwise see it under way or not."""
    job = method_of(world, f"{kind}.trigger")(name)
    eventually(lambda: method_of(world, f"{kind}.explain")(name)["in_flight"] == [])
    return job


def _schedules() -> list[tuple[str, Call]]:
    schedule = {"name": "s", "type": "echo", "interval_s": 9e6, "adaptive": True}
    endpoint = {"name": "e", "url": "http://127.0.0.1:1/", "interval_s": 9e6, "headers": {"Authorization": "s"}}
    calls: list[tuple[str, Call]] = []
    for kind, request in (("schedules", schedule), ("endpoints", endpoint)):
        name = str(request["name"])

        def add(method: str, *args: Any, kind: str = kind, **kwargs: Any) -> None:
            calls.append((f"{kind}.{method}", ask(f"{kind}.{method}", *args, **kwargs)))

        add("create", request)
        add("create", request)
        add("create", {"name": "other", "interval_s": 60})
        add("create", {**request, "name": "other", "colour": 1})
        add("list", order="next_run", enabled=True)
        add("list", order="sideways")
        add("list", cursor=NO_SUCH)
        add("get", name)
        add("get", NO_SUCH)
        add("update", name, {"interval_s": 8e6}, version=1)
        add("update", name, {"interval_s": 8e6}, version=1)
        add("update", name, {"interval_s": 0})
        add("disable", name)
        add("enable", name)
        add("pause", name, until=FAR, reason="night")
        add("pause", name, until="tomorrow")
        add("resume", name)
        add("pause", name)
        add("list", label="team=none")
        add("list", label="team")
        add("pause_many", [name], reason="freeze")
        add("pause_many")
        add("pause_many", [name], label="team=none")
        add("pause_many", label="team=none", until=FAR)
        add("resume_many", label="team=none")
        add("resume_many", [NO_SUCH])
        add("resume_many", ["s" if kind == "schedules" else "e"])
        add("resume_many", [1])
        add("hint", name, interval_s=60, ttl_s=900, reason="slow")
        add("hint", name)
        add("hint", name, next_run_at="tomorrow")
        add("clear_hints", name)
        add("reset_failures", name)
        calls.append((f"{kind}.trigger", partial(_triggered, kind=kind, name=name)))
        for method in ("disable", "enable", "resume", "clear_hints", "reset_failures", "trigger", "explain"):
            add(method, NO_SUCH)
        add("occurrences", name, status=["manual"])
        add("occurrences", name, status="manually")
        add("explain", name)
        add("preview", name, n=2)
        add("preview", name, n=0)
        add("preview_timetable", {"cron": "30 2 * * *", "timezone": "Europe/Vienna", "after": FAR, "n": 2})
        add("preview_timetable", {"cron": "nonsense"})
        add("preview_timetable", {"cron": "@daily", "colour": 1})
    calls += [
        ("endpoints.create", ask("endpoints.create", {**endpoint, "name": "f", "url": "ftp://127.0.0.1/"})),
        ("endpoints.health", lambda world: sorted(world.backend.endpoints.health("e"))),
        ("endpoints.health", ask("endpoints.health", NO_SUCH)),
        ("endpoints.test", ask("endpoints.test", "e")),
        ("endpoints.test", ask("endpoints.test", NO_SUCH)),
        ("schedules.delete", ask("schedules.delete", "s", version=77)),
        ("schedules.delete", ask("schedules.delete", "s")),
        ("schedules.delete", ask("schedules.delete", "s")),
        ("endpoints.delete", ask("endpoints.delete", "e")),
        ("endpoints.delete", ask("endpoints.delete", "e")),
    ]
    return calls


def _webhooks() -> list[tuple[str, Call]]:
    url = "http://127.0.0.1:1/hook"

    def delivered(method: str) -> Call:
        def call(world: World) -> Any:
            job = run("echo", webhook_url=url)(world)
            delivery = world.backend.list_deliveries(job_id=job["id"])["items"][0]
            answer = method_of(world, method)(delivery["id"])
            return {name: answer[name] for name in ("webhook_id", "job_id", "event", "url")}

        return call

    return [
        ("create_webhook", keep("webhook", ask("create_webhook", url, events=["group.finished"]))),
        ("create_webhook", ask("create_webhook", "nonsense")),
        ("create_webhook", ask("create_webhook", url, events=["group.ended"])),
        ("create_webhook", ask("create_webhook", url, secret="short")),
        ("list_webhooks", ask("list_webhooks")),
        ("list_webhooks", ask("list_webhooks", cursor=NO_SUCH)),
        ("get_webhook", on("webhook", "get_webhook")),
        ("get_webhook", ask("get_webhook", UNKNOWN)),
        ("test_webhook", lambda world: on("webhook", "test_webhook")(world)["event"]),
        ("test_webhook", ask("test_webhook", UNKNOWN)),
        ("update_webhook", on("webhook", "update_webhook", {"enabled": False}, version=1)),
        ("update_webhook", on("webhook", "update_webhook", {"enabled": False}, version=1)),
        ("update_webhook", on("webhook", "update_webhook", {"enabled": 1})),
        ("update_webhook", on("webhook", "update_webhook", {"secret": "mine"})),
        ("update_webhook", on("webhook", "update_webhook", {"colour": 1})),
        ("rotate_webhook", on("webhook", "rotate_webhook")),
        ("rotate_webhook", on("webhook", "rotate_webhook", secret="short")),
        ("test_webhook", on("webhook", "test_webhook")),
        ("webhook_secret", ask("webhook_secret")),
        ("rotate_webhook_secret", ask("rotate_webhook_secret")),
        ("rotate_webhook_secret", ask("rotate_webhook_secret", secret="short")),
        ("delete_webhook", on("webhook", "delete_webhook")),
        ("delete_webhook", on("webhook", "delete_webhook")),
        ("get_delivery", delivered("get_delivery")),
        ("get_delivery", ask("get_delivery", NO_SUCH)),
        ("redeliver", ask("redeliver", UNKNOWN)),
        ("list_deliveries", ask("list_deliveries", job_id=UNKNOWN)),
        ("list_deliveries", ask("list_deliveries", job_id=NO_SUCH)),
        ("list_deliveries", ask("list_deliveries", webhook_id=UNKNOWN)),
        ("list_deliveries", ask("list_deliveries", status="SENT")),
    ]


def cancelled_while_waiting(world: World) -> Any:
    """A direct request that waits for a slot which a job holds, and how its client hears that it was cancelled."""
    gate = f"gate of {id(world)}"
    submit("narrow_hold", params={"gate": gate})(world)
    heard: list[Any] = []
    waiting = threading.Thread(
        target=lambda: heard.append(world.outcome(ask("direct", "narrow_hold", {"gate": gate}, wait_s=60)))
    )
    waiting.start()
    try:
        active = eventually(lambda: world.backend.list_reservations(status="ACTIVE")["items"])
        cancelled = world.backend.cancel_reservation(active[0]["id"], "too late")
    finally:
        waiting.join(30)
        open_gate(gate)
    return {"outcome": cancelled["outcome"], "error": cancelled["error"], "heard": heard}


def _direct() -> list[tuple[str, Call]]:
    return [
        ("cancel_reservation", cancelled_while_waiting),
        ("direct", keep("direct", ask("direct", "echo", {"x": 5}))),
        ("direct", ask("direct", "skip")),
        ("direct", ask("direct", "fail")),
        ("direct", ask("direct", "impatient", {"gate": "never"})),
        ("direct", ask("direct", "ecko")),
        ("direct", ask("direct", "echo", {"x": "text"})),
        ("direct", ask("direct", "echo", wait_s=-1)),
        ("list_reservations", ask("list_reservations", status="RELEASED", limit=1)),
        ("list_reservations", ask("list_reservations", status="released")),
        ("get_reservation", lambda world: world.backend.get_reservation(world.known["direct"]["reservation_id"])),
        ("get_reservation", ask("get_reservation", UNKNOWN)),
        (
            "explain_reservation",
            lambda world: world.backend.explain_reservation(world.known["direct"]["reservation_id"]),
        ),
        ("explain_reservation", ask("explain_reservation", NO_SUCH)),
        ("stream_direct", lambda world: [one.data for one in world.backend.stream_direct("echo", {"x": 6})][-1]),
        ("stream_direct", lambda world: list(world.backend.stream_direct("fail"))),
        ("stream_direct", lambda world: list(world.backend.stream_direct("no_such_type"))),
        (
            "get_reservation_logs",
            lambda world: world.backend.get_reservation_logs(world.known["direct"]["reservation_id"]),
        ),
        (
            "get_reservation_chunks",
            lambda world: world.backend.get_reservation_chunks(world.known["direct"]["reservation_id"]),
        ),
        (
            "follow_reservation_chunks",
            lambda world: list(world.backend.follow_reservation_chunks(world.known["direct"]["reservation_id"])),
        ),
        ("get_reservation_logs", ask("get_reservation_logs", UNKNOWN)),
        ("get_reservation_chunks", ask("get_reservation_chunks", NO_SUCH)),
        ("cancel_reservation", lambda world: world.backend.cancel_reservation(world.known["direct"]["reservation_id"])),
        ("cancel_reservation", ask("cancel_reservation", UNKNOWN, "two\nlines")),
        ("reserve_slot", keep("slot", ask("reserve_slot", "lane", ttl_s=60))),
        ("extend_reservation", lambda world: world.backend.extend_reservation(world.known["slot"]["id"], 90)),
        ("reserve_slot", lambda world: world.backend.reserve_slot("lane", ttl_s=0)),
        ("extend_reservation", ask("extend_reservation", UNKNOWN)),
        ("release_reservation", lambda world: world.backend.release_reservation(world.known["slot"]["id"])),
        ("release_reservation", ask("release_reservation", NO_SUCH)),
    ]


def attention(world: World) -> list[tuple[str, int]]:
    """The items that the calls before have made; on a busy machine others come, such as a schedule that fired late."""

    def made() -> list[tuple[str, int]] | None:
        counts = {item["kind"]: item["count"] for item in world.backend.list_attention()["items"]}
        is_complete = {"failed", "limit.changed"} <= counts.keys()
        return [("failed", 1), ("limit.changed", counts["limit.changed"])] if is_complete else None

    return eventually(made)


def _system() -> list[tuple[str, Call]]:
    def first_event(world: World) -> Any:
        events = world.backend.events(after="0")
        try:
            return next(iter(events))["name"]
        finally:
            events.close()

    return [
        ("stats", lambda world: sorted(world.backend.stats())),
        ("list_attention", attention),
        ("mark_attention_seen", ask("mark_attention_seen", "job.queued")),
        ("mark_attention_seen", lambda world: sorted(world.backend.mark_attention_seen())),
        ("workers", lambda world: [worker["kind"] for worker in world.backend.workers()["items"] if worker["slots"]]),
        ("workers", ask("workers", limit=0)),
        ("job_types", ask("job_types")),
        ("job_types", ask("job_types", limit=2)),
        ("job_types", ask("job_types", cursor=NO_SUCH)),
        ("search_events", lambda world: [e["name"] for e in world.backend.search_events(limit=1)["items"]][:0]),
        ("search_events", ask("search_events", since="yesterday")),
        ("search_events", ask("search_events", q="no such event", name=["zombie.found"])),
        ("list_events", lambda world: [e["name"] for e in world.backend.list_events(after="0", limit=3)["items"]]),
        ("list_events", ask("list_events", job_id=NO_SUCH)),
        ("list_events", ask("list_events", after=NO_SUCH)),
        ("events", lambda world: isinstance(first_event(world), str)),
    ]
