"""Hypothesis drives each store against the model, and after every step the two must say the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.errors import Conflict
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import JobStatus, NewJob, RetryPolicy
from holdbeat.domain.lease import Claim
from holdbeat.domain.limit import Limit, Limits
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.domain.submission import Submission
from holdbeat.domain.waits import Wait, WaitKind
from holdbeat.store.durable.signals import send_signal
from holdbeat.store.jobs.cancel import cancel_group
from holdbeat.store.jobs.submit import submit
from holdbeat.store.limits.changes import declare_limits, set_limit
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.settle_and_claim import settle_and_claim
from tests.conformance.acts import (
    OpenStore,
    cancel,
    change,
    claim_some,
    enqueue_all,
    ids_of,
    look,
    make_group,
    rows,
    settle_as,
    settlement,
)
from tests.model.queue_model import ModelGroup, ModelJob, QueueModel

POLICY = "resources:default=3,gpu=1"
PARTITIONED = Limit("each customer", type="b", slots=2, per_partition=True)
SLOTS = {"default": 3, "gpu": 1, PARTITIONED.name: 2}
"""What the limits that an operator changes have at the beginning."""
TYPES = ("a", "b")
TABLES = (
    "jobs", "job_runs", "leases", "job_groups", "events", "throttles", "steps", "signals", "dependencies",
)  # fmt: skip
OUTCOMES = st.sampled_from(
    [
        Outcome.completed({"ok": True}),
        Outcome.completed(),
        Outcome.skipped("nothing to do"),
        *[
            Outcome.failed(kind, "it broke")
            for kind in ErrorKind
            if kind not in (ErrorKind.CANCELLED, ErrorKind.THROTTLED)
        ],
        Outcome.throttled("come back later", 7),
        Outcome.continued((Wait(WaitKind.SLEEP, "$sleep", None, 20.0),)),
        *[
            Outcome.continued((Wait(WaitKind.SIGNAL, f"$signal:go#{number}", None, timeout_s, "go", number),))
            for number in (1, 2)
            for timeout_s in (None, 20.0)
        ],
    ]
)
REQUESTS = st.builds(
    lambda type_, resource, priority, attempts, partition, weight: NewJob(
        type_,
        resource=resource,
        priority=priority,
        retry_policy=RetryPolicy(max_attempts=attempts),
        partition=partition,
        weight=weight,
    ),
    st.sampled_from(TYPES),
    st.sampled_from(["default", "gpu", "other"]),
    st.sampled_from([0, 0, 5]),
    st.sampled_from([0, 1, 3]),
    st.sampled_from(["", "", "x", "y"]),
    st.sampled_from([1, 1, 1, 2, 3]),
)
DELAYS = st.sampled_from([0, 0, 0, 5])


class StoreAgainstModel(RuleBasedStateMachine):
    def __init__(self, open_store: OpenStore) -> None:
        super().__init__()
        self.clock = open_store.clock
        self.store = open_store.kept(POLICY)
        self.slots = dict(SLOTS)
        self.model = QueueModel(self._limits())
        self.most: dict[str, int] = {}
        """What each resource may hold, or held when its limit was lowered."""
        self.running: list[Claim] = []
        self.spent: list[Claim] = []
        self.workers = 0

    @initialize()
    def begin(self) -> None:
        for table in TABLES:
            change(self.store, f"DELETE FROM {table}")
        self.store.write_sync(announce, [AnnouncedType(name) for name in TYPES])
        self.store.write_sync(declare_limits, ConcurrencyPolicy.parse(POLICY).limits(), [PARTITIONED], by="w")
        for name, slots in SLOTS.items():
            self.store.write_sync(set_limit, name, {"slots": slots})

    def _limits(self) -> Limits:
        declared = ConcurrencyPolicy.parse(POLICY).limits().with_more([PARTITIONED])
        return Limits(replace(limit, slots=self.slots.get(limit.name, limit.slots)) for limit in declared)

    # --- what happens -------------------------------------------------------------------------------------

    @rule(requests=st.lists(REQUESTS, min_size=1, max_size=3), delay_s=DELAYS)
    def enqueue(self, requests: list[NewJob], delay_s: int) -> None:
        for request in requests:
            request.not_before = self.clock.now() + timedelta(seconds=delay_s) if delay_s else None
        for job in enqueue_all(self.store, requests):
            self.model.jobs[job.id] = ModelJob.of(job)

    @rule(
        requests=st.lists(REQUESTS, min_size=1, max_size=3),
        mode=st.sampled_from(list(GroupMode)),
        on_failure=st.sampled_from(list(OnFailure)),
    )
    def make_a_group(self, requests: list[NewJob], mode: GroupMode, on_failure: OnFailure) -> None:
        group, jobs = make_group(self.store, mode, on_failure, requests)
        self.model.groups[group.id] = ModelGroup(mode, on_failure)
        for job in jobs:
            self.model.jobs[job.id] = ModelJob.of(job)
            self.model.jobs[job.id].gated = mode is GroupMode.SEQUENTIAL and job.sequence != 0

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), on_upstream=st.sampled_from(["cancel", "skip", "run"]), attempts=st.sampled_from([0, 1]))
    def submit_a_dependent(self, data: st.DataObject, on_upstream: str, attempts: int) -> None:
        """A job that waits for one or two others, which may be anywhere in their chains, or have ended."""
        named = data.draw(st.lists(st.sampled_from(sorted(self.model.jobs)), min_size=1, max_size=2))
        roots = {self.model.jobs[job_id].root_id: job_id for job_id in named}
        request = {
            "type": "a",
            "after": [{"job_id": job_id} for job_id in roots.values()],
            "on_upstream": on_upstream,
            "retry_policy": {"max_attempts": attempts},
        }
        job = self.store.write_sync(submit, [Submission.read(request)]).jobs[0]
        self.model.jobs[job.id] = dependent = ModelJob.of(job)
        dependent.after, dependent.on_upstream, dependent.blocked = tuple(roots), on_upstream, True
        self.model.follow()

    @rule(
        key=st.sampled_from(["k", "l"]),
        unique_while=st.sampled_from(["queued", "unfinished"]),
        on_duplicate=st.sampled_from(["return", "refuse", "replace"]),
        attempts=st.sampled_from([0, 3]),
    )
    def submit_a_unique_job(self, key: str, unique_while: str, on_duplicate: str, attempts: int) -> None:
        holder = self.model.holder_of(key)
        request = {
            "type": "b",
            "unique_key": key,
            "unique_while": unique_while,
            "on_duplicate": on_duplicate,
            "retry_policy": {"max_attempts": attempts},
        }
        submission = Submission.read(request)
        is_refused = on_duplicate == "refuse"
        if holder is not None and on_duplicate == "replace":
            is_refused = holder.status is JobStatus.RUNNING or holder.has_begun
        if holder is not None and is_refused:
            with pytest.raises(Conflict):
                self.store.write_sync(submit, [submission])
            return
        job = self.store.write_sync(submit, [submission]).jobs[0]
        if holder is not None:
            assert job.id == holder.id
        else:
            self.model.jobs[job.id] = ModelJob.of(job)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def send_a_signal(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.model.jobs)))
        number = self.model.signalled(job_id, "go")
        if number is None:
            with pytest.raises(Conflict):
                self.store.write_sync(send_signal, job_id, "go")
        else:
            assert self.store.write_sync(send_signal, job_id, "go").number == number

    @rule(slots=st.integers(1, 4), types=st.sampled_from([TYPES, ("a",)]))
    def claim(self, slots: int, types: tuple[str, ...]) -> None:
        self.workers += 1
        expected = self.model.next_for(slots, types, self.clock.now())
        claims = claim_some(self.store, slots, worker=f"w{self.workers}", types=types)
        assert ids_of(claims) == expected
        for job_id in expected:
            self.model.claimed(job_id)
        self.running += claims

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=OUTCOMES)
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        taken = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.spent.append(taken)
        assert settle_as(self.store, taken, outcome) == "accepted"
        self._note_the_end(taken, outcome)

    @rule(data=st.data(), outcome=OUTCOMES, slots=st.integers(1, 3))
    def take_a_turn(self, data: st.DataObject, outcome: Outcome, slots: int) -> None:
        """Settles one run, if there is one, and fills free slots, in one transaction."""
        ended = [self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))] if self.running else []
        self.spent += ended
        self.workers += 1
        words = [settlement(taken, outcome) for taken in ended]
        done = self.store.write_sync(settle_and_claim, words, Vacancy(f"w{self.workers}", range(slots), (), TYPES))
        assert done.settled == ["accepted" for _ in ended]
        for taken in ended:
            self._note_the_end(taken, outcome)
        assert ids_of(done.claims) == self.model.next_for(slots, TYPES, self.clock.now())
        for job_id in ids_of(done.claims):
            self.model.claimed(job_id)
        self.running += done.claims

    def _note_the_end(self, taken: Claim, outcome: Outcome) -> None:
        job_id = taken.lease.job_id or ""
        retry, not_before = self.model.settled(job_id, outcome, self.clock.now())
        stored = look(self.store, job_id)
        assert (stored.retried_by is not None) is retry
        if stored.retried_by:
            self.model.retried(job_id, stored.retried_by, not_before, self.clock.now(), outcome)
        self._follow(self.model.jobs[job_id].group_id)

    def _follow(self, group_id: str | None) -> None:
        self.model.step(group_id)
        self.model.follow()

    @precondition(lambda self: self.spent)
    @rule(data=st.data(), outcome=OUTCOMES)
    def settle_again(self, data: st.DataObject, outcome: Outcome) -> None:
        taken = data.draw(st.sampled_from(self.spent))
        assert settle_as(self.store, taken, outcome) == "stale"

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def cancel_a_job(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.model.jobs)))
        tip = self.model.tip(job_id)
        if tip.status.is_terminal:
            with pytest.raises(Conflict):
                cancel(self.store, job_id)
            return
        at_once = tip.status is JobStatus.QUEUED
        assert cancel(self.store, job_id).id == tip.id
        self.model.cancelled(tip, "cancelled by request")
        if at_once:
            self._follow(tip.group_id)

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data())
    def cancel_a_group(self, data: st.DataObject) -> None:
        group_id = data.draw(st.sampled_from(sorted(self.model.groups)))
        mine = [job for job in self.model.jobs.values() if job.group_id == group_id]
        unfinished = [job for job in mine if not job.status.is_terminal]
        if not unfinished:
            with pytest.raises(Conflict):
                self.store.write_sync(cancel_group, group_id)
            return
        self.store.write_sync(cancel_group, group_id)
        any_queued = any(job.status is JobStatus.QUEUED for job in unfinished)
        for job in unfinished:
            self.model.cancelled(job, "group cancelled")
        if any_queued:
            self._follow(group_id)

    @rule(name=st.sampled_from(sorted(SLOTS)), slots=st.integers(0, 4))
    def set_a_limit(self, name: str, slots: int) -> None:
        self.store.write_sync(set_limit, name, {"slots": slots})
        self.slots[name] = slots
        self.model.limits = self._limits()
        self.model.throttles = {place: until for place, until in self.model.throttles.items() if place[0] != name}

    @rule(seconds=st.sampled_from([1, 5, 10, 40]))
    def let_time_pass(self, seconds: int) -> None:
        self.clock.advance(seconds)

    # --- what must hold -----------------------------------------------------------------------------------

    @invariant()
    def store_and_model_agree(self) -> None:
        stored = rows(
            self.store,
            "SELECT id, status, retried_by, permanently_failed, priority, position, root_id, unique_key FROM jobs",
        )
        assert {row[0]: (row[1], row[2], bool(row[3]), row[4], row[5], row[6] or row[0], row[7]) for row in stored} == {
            job.id: (
                job.status, job.retried_by, job.permanently_failed, job.priority, job.position, job.root_id,
                job.unique_key,
            )
            for job in self.model.jobs.values()
        }  # fmt: skip
        groups = rows(self.store, "SELECT id, status, finished_at IS NOT NULL FROM job_groups")
        assert {row[0]: (row[1], bool(row[2])) for row in groups} == {
            group_id: (group.status, group.status.is_terminal) for group_id, group in self.model.groups.items()
        }

    @invariant()
    def leases_are_the_runs_at_hand_and_within_limits(self) -> None:
        records = rows(self.store, "SELECT id, job_id, resource, weight FROM leases")
        assert {row[1] for row in records} == {job.id for job in self.model.jobs.values() if job.leased}
        used: Counter[str] = Counter()
        for _, _, resource, weight in records:
            used[resource] += weight
        for resource in ("default", "gpu", "other"):
            limit = self.model.limits.slots_of(resource)
            assert limit is not None
            assert used[resource] <= max(limit, self.most.get(resource, 0))
            self.most[resource] = used[resource]
        open_runs = rows(self.store, "SELECT id FROM job_runs WHERE status IS NULL")
        assert {row[0] for row in open_runs} == {row[0] for row in records}

    @invariant()
    def every_job_has_at_most_one_run_and_only_if_it_ran(self) -> None:
        counts = Counter(row[0] for row in rows(self.store, "SELECT job_id FROM job_runs"))
        assert counts == Counter(job.id for job in self.model.jobs.values() if job.ran)

    @invariant()
    def no_group_has_ended_before_its_members(self) -> None:
        early = rows(
            self.store,
            "SELECT g.id FROM job_groups g JOIN jobs j ON j.group_id = g.id LEFT JOIN leases l ON l.job_id = j.id "
            "WHERE g.finished_at IS NOT NULL AND (j.status IN ('QUEUED', 'RUNNING') OR l.id IS NOT NULL)",
        )
        assert early == []


@pytest.mark.rule(
    "INV-004",
    "INV-006",
    "DEC-001",
    "DEC-007",
    "DEC-012",
    "CAP-01",
    "CAN-01",
    "LEASE-03",
    "LIM-01",
    "LIM-02",
    "LIM-04",
    "LIM-06",
    "LIM-09",
    "WAIT-01",
    "WAIT-03",
    "DEP-01",
    "DEP-02",
    "QUE-08",
)
def test_whatever_happens_the_store_says_what_the_model_says(open_store: OpenStore, campaign: str) -> None:
    run_state_machine_as_test(
        lambda: StoreAgainstModel(open_store),  # type: ignore[arg-type]
        settings=settings(
            max_examples=40 if campaign == "short" else 400,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
