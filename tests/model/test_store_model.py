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
from holdbeat.store.jobs.cancel import cancel_group
from holdbeat.store.limits.changes import declare_limits, set_limit
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.settle_and_claim import turn
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
TABLES = ("jobs", "job_runs", "leases", "job_groups", "events", "throttles")
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
        done = self.store.write_sync(turn, words, Vacancy(f"w{self.workers}", range(slots), (), TYPES))
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
        found = look(self.store, job_id)
        assert (found.retried_by is not None) is retry
        if found.retried_by:
            self.model.retried(job_id, found.retried_by, not_before, self.clock.now())
        self.model.step(self.model.jobs[job_id].group_id)

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
            self.model.step(tip.group_id)

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
            self.model.step(group_id)

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
        found = rows(self.store, "SELECT id, status, retried_by, permanently_failed, priority, position FROM jobs")
        assert {row[0]: (row[1], row[2], bool(row[3]), row[4], row[5]) for row in found} == {
            job.id: (job.status, job.retried_by, job.permanently_failed, job.priority, job.position)
            for job in self.model.jobs.values()
        }
        groups = rows(self.store, "SELECT id, status, finished_at IS NOT NULL FROM job_groups")
        assert {row[0]: (row[1], bool(row[2])) for row in groups} == {
            group_id: (group.status, group.status.is_terminal) for group_id, group in self.model.groups.items()
        }

    @invariant()
    def leases_are_the_runs_at_hand_and_within_limits(self) -> None:
        found = rows(self.store, "SELECT id, job_id, resource, weight FROM leases")
        assert {row[1] for row in found} == {job.id for job in self.model.jobs.values() if job.leased}
        used: Counter[str] = Counter()
        for _, _, resource, weight in found:
            used[resource] += weight
        for resource in ("default", "gpu", "other"):
            limit = self.model.limits.slots_of(resource)
            assert limit is not None
            assert used[resource] <= max(limit, self.most.get(resource, 0))
            self.most[resource] = used[resource]
        open_runs = rows(self.store, "SELECT id FROM job_runs WHERE status IS NULL")
        assert {row[0] for row in open_runs} == {row[0] for row in found}

    @invariant()
    def every_job_has_at_most_one_run_and_only_if_it_ran(self) -> None:
        found = Counter(row[0] for row in rows(self.store, "SELECT job_id FROM job_runs"))
        assert found == Counter(job.id for job in self.model.jobs.values() if job.ran)

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
