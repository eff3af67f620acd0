"""A store in which everything has happened that can: each state that a row can be in, made by the verbs themselves.

For tests of what must keep a whole store as it is: moving it, backing it up, upgrading it. `make_lived_store` is all
they call; `lived_rows.REQUIRED` lists what must be in the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from holdbeat.domain.affinity import Affinity
from holdbeat.domain.api_key import Scope, new_key
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import NewJob, RetryPolicy
from holdbeat.domain.lease import Claim
from holdbeat.domain.limit import limit_of
from holdbeat.domain.params import dumps
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.domain.submission import Submission
from holdbeat.domain.webhook import judge_attempt
from holdbeat.store.access.api_keys import create_api_key, revoke_api_key, touch_api_keys
from holdbeat.store.access.exposed_servers import note_server
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.questions import Asked, ask_question
from holdbeat.store.durable.signals import send_signal
from holdbeat.store.durable.steps import StepEntry, keep_step
from holdbeat.store.firing.manual_fire import trigger_schedule
from holdbeat.store.jobs.cancel import cancel_group
from holdbeat.store.jobs.edit_job import change_job
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.jobs.submit import submit
from holdbeat.store.limits.changes import declare_limits, set_limit
from holdbeat.store.limits.starvation import note_starvation
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.queue.move import move_job, reorder
from holdbeat.store.queue.pauses import pause
from holdbeat.store.queue.templates import archive_template, create_template
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.running.reservations import cancel_reservation, give_up_waiting
from holdbeat.store.running.run_output import (
    ArtifactEntry,
    LogEntry,
    ProgressEntry,
    append_logs,
    progress,
    replace_artifact,
)
from holdbeat.store.running.shared_terms import note_terms
from holdbeat.store.running.workers import begin_stopping, stop_worker
from holdbeat.store.schedules.schedules import delete_schedule, disable_schedule, pause_schedule, set_hints
from holdbeat.store.webhooks.deliveries import DeliveryResult, finish_deliveries, take_deliveries
from holdbeat.store.webhooks.subscriptions import create_webhook, patch_webhook, rotate_webhook, server_secret
from tests.conformance.acts import (
    cancel,
    claim_all,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_all,
    enqueue_one,
    fail,
    job_of_claim,
    make_group,
    open_at,
    rows,
    settle_as,
    skip,
)
from tests.conformance.lived_rows import PAUSED, REQUIRED
from tests.conformance.repair import ask_directly, introduce, recover
from tests.conformance.schedule_acts import fire_all, make, make_adaptive, make_endpoint

AGING_S = 60.0
WORKED_S = 6 * 3600.0
QUIET_S = 900.0
"""How long ago the last thing happened: longer than any lease and its grace."""
LAST_CHAPTER_S = 600.0
ONCE = RetryPolicy(max_attempts=0)
SOON = RetryPolicy(max_attempts=1, base_delay_s=0)
TWICE = RetryPolicy(max_attempts=1, base_delay_s=5)
ODD_TEXT = 'tab\t "quoted" \\N back\\slash\nüñí 🦊 {NULL}'
ODD_LINE = 'a "quoted" back\\slash \\N üñí 🦊 {NULL}'
RECEIVER = "http://127.0.0.1:9"

LIVED_APP = """
from holdbeat import App

app = App()
for name in ("noop", "a", "b", "c"):
    async def handler() -> str:
        return "done after the move"
    app.job_with(handler, name=name)
"""
"""A program that can do the work that the lived store still holds."""


@dataclass(frozen=True, slots=True)
class Life:
    store: PersistenceAdapter
    clock: ManualClock
    folder: Path
    """Where artifacts that are files go."""


def make_lived_store(url: str, folder: Path, *, until: datetime | None = None) -> None:
    """Makes a store at `url` that was in use for hours, until a quarter of an hour before `until` (now)."""
    end = (until or datetime.now(UTC)) - timedelta(seconds=QUIET_S)
    clock = ManualClock(end - timedelta(seconds=WORKED_S))
    store = open_at(url, clock=clock, aging_s=AGING_S)
    try:
        life = Life(store, clock, folder)
        for chapter in (_settings, _history, _groups, _direct_requests, _limits, _schedules, _deliveries):
            chapter(life)
        clock.advance((end - clock.now()).total_seconds() - LAST_CHAPTER_S)
        _unfinished(life)
        for table, conditions in REQUIRED.items():
            for condition in conditions:
                assert count(store, table, condition), f"the lived store has no row in {table} with {condition}"
    finally:
        store.close()


def _settings(life: Life) -> None:
    """Types, templates, keys, subscriptions, workers."""
    write = life.store.write_sync
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    write(announce, [AnnouncedType("tale", schema, {"priority": 3}, ("story",), ODD_TEXT), AnnouncedType("c")])
    write(create_template, {"name": "daily", "type": "c", "default_params": {"n": 7}, "labels": {"team": "ü"}})
    write(create_template, {"name": "old", "type": "c", "retry_policy": {"max_attempts": 9}, "timeout_s": 2.5})
    write(archive_template, "old")
    used = write(create_api_key, "used", Scope.ADMIN, new_key(bytes(range(32))), life_s=86_400)
    write(touch_api_keys, [used.id])
    write(revoke_api_key, write(create_api_key, "lost", Scope.READ, new_key(bytes(32))).id)
    rotated = write(create_webhook, f"{RECEIVER}/all")
    write(rotate_webhook, rotated.id)
    write(create_webhook, "http://127.0.0.2:9/gone", ["job.run.failed"])
    write(patch_webhook, write(create_webhook, f"{RECEIVER}/off").id, {"enabled": False})
    write(server_secret)
    introduce(life.store, "stopped", slots=4)
    introduce(life.store, "lost", types=("noop", "a"), resources=("default",), http_slots=2)
    write(note_terms, works=True)
    write(
        declare_limits,
        life.store.terms.limits,
        [
            limit_of("api", {"resource": "http", "rate": {"count": 600, "per_s": 60, "burst": 3}}),
            limit_of("metered", {"resource": "metered", "rate": {"count": 1, "per_s": 60}, "fair": True}),
        ],
        by="lost",
    )
    write(set_limit, "gpu", {"slots": 900, "per_partition": False}, by="somebody")
    enqueue_all(life.store, [NewJob("a", resource="metered", partition="x")])
    (metered,) = claim_some(life.store, 1, worker="metered", resources=["metered"])
    complete(life.store, metered)
    write(note_server, "stopped", is_exposed=True)
    write(begin_stopping, "stopped")
    write(stop_worker, "stopped", "asked to")


def _report(life: Life, taken: Claim) -> None:
    """Everything that a run can leave behind: log lines, progress, an artifact in a file and one in the store."""
    lease = taken.lease
    fence = (lease.id, lease.worker_id, lease.fence)
    now = life.clock.now()
    lines = [ODD_TEXT, "", "x" * 5000]
    life.store.write_sync(append_logs, [LogEntry(*fence, n, "log", text, now) for n, text in enumerate(lines, 1)])
    life.store.write_sync(progress, [ProgressEntry(*fence, 1 / 3, ODD_TEXT, now)])
    content = bytes(range(256)) * 40
    digest = hashlib.sha256(content).hexdigest()
    file = life.folder / lease.id / "picture"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    life.store.write_sync(replace_artifact, ArtifactEntry(*fence, "picture", len(content), digest, path=str(file)))
    life.store.write_sync(replace_artifact, ArtifactEntry(*fence, "inside", len(content), digest, data=content))
    job = job_of_claim(taken)
    life.store.write_sync(keep_step, StepEntry(*fence, job.chain_id, "crawl", dumps({"text": ODD_TEXT}), now, 0.25))
    life.store.write_sync(
        ask_question, Asked(*fence, job.id, job.chain_id, "$ask:1", f"{ODD_LINE}\n{ODD_LINE}", ["yes", ODD_TEXT])
    )
    life.store.write_sync(send_signal, job.id, "approved", {"by": ODD_TEXT}, "somebody")


def _history(life: Life) -> None:
    """Work that has ended in each of its ways: delayed, aged, retried by itself and by hand, skipped, cancelled."""
    store, clock = life.store, life.clock
    enqueue_one(store, "a", params={"text": ODD_TEXT, "n": [1, 2.5, None, True]}, labels={"k": ODD_LINE})
    first = claim_one(store, types=["a"])
    _report(life, first)
    complete(store, first, {"answer": [0.1, 1e300, ODD_TEXT]})
    enqueue_one(store, "a", not_before=clock.now() + timedelta(seconds=30), priority=2)
    clock.advance(30 + 3 * AGING_S)
    complete(store, claim_one(store, types=["a"]))
    enqueue_one(store, "a", retry_policy=TWICE, webhook_url=f"{RECEIVER}/own")
    fail(store, claim_one(store, types=["a"]), error=ODD_TEXT)
    clock.advance(5)
    complete(store, claim_one(store, types=["a"]))
    lost = enqueue_one(store, "a", retry_policy=TWICE)
    fail(store, claim_one(store, types=["a"]), ErrorKind.TIMEOUT, "too slow")
    clock.advance(5)
    fail(store, claim_one(store, types=["a"]))
    store.write_sync(retry_job, lost.id)
    complete(store, claim_one(store, types=["a"]))
    for kind in (ErrorKind.INTERRUPTED, ErrorKind.EXIT):
        enqueue_one(store, "a", retry_policy=ONCE)
        fail(store, claim_one(store, types=["a"]), kind)
        for taken in claim_all(store, types=["a"]):
            complete(store, taken)
    enqueue_one(store, "a")
    skip(store, claim_one(store, types=["a"]), ODD_TEXT)
    cancel(store, enqueue_one(store, "a").id, ODD_LINE)
    stopped = enqueue_one(store, "a")
    taken = claim_one(store, types=["a"])
    cancel(store, stopped.id)
    settle_as(store, taken, Outcome.failed(ErrorKind.CANCELLED, "stopped"))
    enqueue_one(store, "a", retry_policy=ONCE)
    claim_one(store, types=["a"], worker="silent")
    clock.advance(400)
    # On PostgreSQL the silent workers are ended as well; on SQLite the kernel tells who is dead.
    assert recover(store) >= 1
    submitted: list[dict[str, Any]] = [
        {"type": "c", "idempotency_key": f"key {ODD_LINE}"},
        {"template": "daily", "timeout_s": 0.1},
    ]
    store.write_sync(submit, [Submission.read(request) for request in submitted])
    for taken in claim_all(store, types=["c"]):
        complete(store, taken)


def _groups(life: Life) -> None:
    """Groups that have ended in each way, in both modes and with each answer to a failure."""
    store = life.store
    for mode in GroupMode:
        for on_failure in OnFailure:
            make_group(store, mode, on_failure, 2)
            _work_off(store, [Outcome.completed(None)])
            members = [NewJob("noop", retry_policy=ONCE, webhook_url=RECEIVER) for _ in range(3)]
            make_group(store, mode, on_failure, members)
            _work_off(store, [Outcome.completed(1), Outcome.failed(ErrorKind.ERROR, "broken"), Outcome.skipped("no")])
        store.write_sync(cancel_group, make_group(store, mode, OnFailure.STOP, 2)[0].id, "not needed")


def _work_off(store: PersistenceAdapter, outcomes: Sequence[Outcome]) -> None:
    """Runs all jobs of the type noop, one after the other; they end with the outcomes in turn."""
    number = 0
    while claims := claim_some(store, 1, types=["noop"]):
        settle_as(store, claims[0], outcomes[number % len(outcomes)])
        number += 1


def _direct_requests(life: Life) -> None:
    store, write = life.store, life.store.write_sync
    for outcome in (Outcome.completed({"said": ODD_TEXT}), Outcome.failed(ErrorKind.ERROR, "broken")):
        ask_directly(store, type="b", params={"n": 1}, timeout_s=4.5)
        settle_as(store, claim_one(store, types=["b"]), outcome)
    write(cancel_reservation, ask_directly(store, type="b").id, "hung up")
    write(give_up_waiting, ask_directly(store, type="b").id, 300.0)
    ask_directly(store, type="b", reservation_s=1)
    life.clock.advance(400)
    assert recover(store)


def _limits(life: Life) -> None:
    """What limits leave behind: a partition that was throttled, direct requests that starved a job, affinities."""
    store, clock, write = life.store, life.clock, life.store.write_sync
    write(set_limit, "studio", {"resource": "studio", "slots": 1}, by="somebody")
    store.terms.direct_burst = 5
    ask_directly(store, type="b", resource="studio")
    enqueue_one(store, "a", resource="studio", partition="p")
    (direct,) = claim_some(store, 1, resources=["studio"])
    clock.advance(400)
    write(note_starvation, 300)
    complete(store, direct)
    store.terms.direct_burst = 0
    (claimed,) = claim_some(store, 1, resources=["studio"])
    settle_as(store, claimed, Outcome.throttled("429", 5))
    clock.advance(5)
    (retry,) = claim_some(store, 1, resources=["studio"])
    complete(store, retry)
    enqueue_one(store, "a", resource="studio", affinity="model")
    vacancy = Vacancy("lost", [0], types=("a",), resources=("studio",), affinities={"studio": Affinity("model", 1)})
    (loaded,) = write(claim, vacancy)
    complete(store, loaded)


def _schedules(life: Life) -> None:
    """Schedules of each kind, with due times that had each fate."""
    store, clock, write = life.store, life.clock, life.store.write_sync
    make(store, "cron", cron="*/7 * * * *", timezone="Europe/Berlin", jitter_s=45, params={"t": ODD_TEXT})
    make(store, "grid", interval_s=90.5, catch_up="none", labels={"a": "b"})
    make(store, "newest", interval_s=60, template="daily", catch_up="latest", overlap="skip")
    make(store, "deleted", interval_s=60)
    make_adaptive(store, "adaptive", min_interval_s=10, max_interval_s=7200)
    make_endpoint(store, "endpoint", url=f"{RECEIVER}/health", headers={"Authorization": "Bearer secret"})
    for _ in range(4):
        clock.advance(61)
        fire_all(store)
        for taken in claim_all(store, types=["noop", "c"]):
            complete(store, taken)
        for taken in claim_all(store, types=["http"]):
            fail(store, taken, ErrorKind.ERROR, "HTTP 503")
    clock.advance(1000)
    fire_all(store)
    fire_all(store)
    for taken in claim_all(store, types=["noop", "c", "http"]):
        complete(store, taken)
    write(delete_schedule, "deleted")
    make(store, "paused", interval_s=60)
    write(pause_schedule, "paused", clock.now() + timedelta(days=300), ODD_LINE)
    clock.advance(200)
    fire_all(store)
    make(store, "disabled", interval_s=60)
    write(disable_schedule, "disabled")
    write(trigger_schedule, "disabled")
    later = clock.now() + timedelta(hours=9)
    write(set_hints, "adaptive", interval_s=100.25, next_run_at=later, ttl_s=80000.0, reason="busy")
    for taken in claim_all(store, types=["noop", "c", "http"]):
        if job_of_claim(taken).type == "http":
            fail(store, taken, ErrorKind.ERROR, "HTTP 503")
        else:
            complete(store, taken)


def _deliveries(life: Life) -> None:
    """Messages that arrived, that wait for another attempt, that nobody takes, and that a dead process had taken."""
    store, clock = life.store, life.clock
    for status_code in (204, 500, 410):
        taken = store.write_sync(take_deliveries, "sender", 5, 30.0)
        assert taken
        results = []
        for item in taken:
            code = status_code if status_code != 410 or "gone" in item.delivery.url else 200
            verdict = judge_attempt(attempts=item.delivery.attempts + 1, now=clock.now(), jitter=1.0, status_code=code)
            results.append(DeliveryResult(item.delivery.id, "sender", verdict, code))
        store.write_sync(finish_deliveries, results)
    assert store.write_sync(take_deliveries, "sender", 2, 30.0)


def _unfinished(life: Life) -> None:
    """What is left to do: every kind of waiting and running."""
    introduce(life.store, "last", slots=1)  # the others were ended by recovery, where their silence tells
    store, clock, write = life.store, life.clock, life.store.write_sync
    make(store, "overlapping", interval_s=60, overlap="queue_one", type="b", retry_policy=SOON)
    make_adaptive(store, "in flight", type="b")
    clock.advance(300)
    fire_all(store)
    claim_some(store, 2, types=["b"], worker="lost")
    clock.advance(61)
    fire_all(store)
    soon = clock.now() + timedelta(seconds=30)
    enqueue_one(store, "a", not_before=soon, priority=4)
    _failed(store, "noop", TWICE)
    _failed(store, "c", TWICE)
    clock.advance(2 * AGING_S + 1)
    assert claim_some(store, 1, types=["nobody has this"]) == []
    enqueue_one(store, "a", not_before=clock.now() + timedelta(days=3))
    enqueue_one(store, "a", not_before=clock.now() + timedelta(seconds=1))
    line = enqueue_all(store, [NewJob("a", {"n": n}, priority=5) for n in range(6)])
    write(move_job, line[5].id, to="top")
    write(move_job, line[0].id, after=line[3].id)
    write(reorder, [line[4].id, line[2].id])
    write(change_job, line[1].id, {"priority": 8})
    write(pause, PAUSED, by="operator", reason=ODD_LINE)
    enqueue_one(store, "a", resource=PAUSED)
    write(retry_job, _failed(store, "a", ONCE))
    make_group(store, GroupMode.SEQUENTIAL, OnFailure.SKIP, [NewJob("a"), NewJob("noop"), NewJob("a")])
    _, members = make_group(
        store, GroupMode.SEQUENTIAL, OnFailure.STOP, [NewJob("b", priority=99, retry_policy=SOON), NewJob("a")]
    )
    claims = claim_some(store, 1, types=["b"], worker="lost", first_slot=4)
    assert job_of_claim(claims[0]).id == members[0].id
    make_group(
        store, GroupMode.PARALLEL, OnFailure.CONTINUE, [NewJob("b", priority=98, retry_policy=SOON) for _ in range(2)]
    )
    for number, taken in enumerate(claim_some(store, 2, types=["b"], worker="lost", first_slot=5)):
        if number == 0:
            cancel(store, job_of_claim(taken).id, "while it ran")
    entry = (claims[0].lease.id, "lost", claims[0].lease.fence)
    write(progress, [ProgressEntry(*entry, None, None, clock.now())])
    _dependents(life, line[0].id)
    ask_directly(store, type="b", owner="lost")
    claim_some(store, 1, types=["b"], worker="lost", first_slot=9)
    ask_directly(store, type="b", owner="lost")


def _dependents(life: Life, unfinished_id: str) -> None:
    """A job that waits for one that has ended and for one that has not, and a group that is waited for."""
    store = life.store
    store.write_sync(announce, [AnnouncedType("a")])
    ended = rows(store, "SELECT id FROM jobs WHERE status = 'COMPLETED' AND retried_by IS NULL ORDER BY id LIMIT 1")
    group = rows(store, "SELECT id FROM job_groups WHERE status = 'QUEUED' ORDER BY id LIMIT 1")
    after = [{"job_id": ended[0][0], "as": ODD_LINE}, {"job_id": unfinished_id}, {"group_id": group[0][0]}]
    store.write_sync(submit, [Submission.read({"type": "a", "after": after, "on_upstream": "run"})])
    unique = {"type": "a", "unique_key": ODD_LINE, "unique_while": "queued", "expires_in_s": 1_000_000}
    store.write_sync(submit, [Submission.read(unique)])


def _failed(store: PersistenceAdapter, type_: str, retry_policy: RetryPolicy) -> str:
    """A job that failed, before all others of its type."""
    job = enqueue_one(store, type_, retry_policy=retry_policy, priority=100)
    taken = claim_one(store, types=[type_])
    assert job_of_claim(taken).id == job.id
    fail(store, taken)
    return job.id
