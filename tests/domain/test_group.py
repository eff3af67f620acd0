"""GroupFailurePolicy: every policy, mode and ending, and never an end before the last member's."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.group import (
    PREDECESSOR_CANCELLED,
    PREDECESSOR_FAILED,
    GroupFailurePolicy,
    GroupMode,
    GroupStatus,
    Member,
    OnFailure,
)
from holdbeat.domain.job import JobStatus

COMPLETED = JobStatus.COMPLETED
FAILED = JobStatus.FAILED
SKIPPED = JobStatus.SKIPPED
CANCELLED = JobStatus.CANCELLED
QUEUED = JobStatus.QUEUED
RUNNING = JobStatus.RUNNING


def member(sequence: int, status: JobStatus, **facts: bool) -> Member:
    facts.setdefault("failed_for_good", status is FAILED)
    facts.setdefault("ever_ran", status is not QUEUED)
    facts.setdefault("holds_lease", status is RUNNING)
    return Member(sequence, f"tip-{sequence}", status, **facts)


def gated(sequence: int) -> Member:
    return member(sequence, QUEUED, is_gated=True)


MEMBERS = st.lists(
    st.builds(
        lambda status, gate, lease, verdict, policy: Member(
            0,
            "",
            status,
            is_gated=gate and status is QUEUED,
            holds_lease=status is RUNNING or (lease and status is CANCELLED),
            failed_for_good=verdict and status is FAILED,
            skipped_by_policy=policy and status is SKIPPED,
            ever_ran=status is not QUEUED,
        ),
        st.sampled_from(list(JobStatus)),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
).map(
    lambda match: [
        Member(
            index,
            f"tip-{index}",
            m.status,
            m.is_gated,
            m.holds_lease,
            m.failed_for_good,
            m.skipped_by_policy,
            m.ever_ran,
        )
        for index, m in enumerate(match)
    ]
)
POLICIES = st.builds(GroupFailurePolicy, st.sampled_from(list(GroupMode)), st.sampled_from(list(OnFailure)))


@pytest.mark.rule("INV-006")
@given(policy=POLICIES, members=MEMBERS)
def test_a_group_is_never_terminal_while_a_member_is_not(policy: GroupFailurePolicy, members: list[Member]) -> None:
    step = policy.step(members)
    ended_now = set(step.cancel) | set(step.skip)
    open_members = [m for m in members if not m.has_ended and m.tip_id not in ended_now]
    assert step.status.is_terminal is not bool(open_members)


@pytest.mark.rule("INV-006")
@given(policy=POLICIES, members=MEMBERS)
def test_a_step_touches_only_queued_members_and_each_in_one_way(
    policy: GroupFailurePolicy, members: list[Member]
) -> None:
    step = policy.step(members)
    queued = {m.tip_id for m in members if m.status is QUEUED}
    touched = [*step.open_gates, *step.cancel, *step.skip]
    assert set(touched) <= queued
    assert len(set(touched)) == len(touched)
    assert not (step.cancel and policy.on_failure is not OnFailure.STOP)
    assert not (step.skip and policy.on_failure is not OnFailure.SKIP)


@pytest.mark.rule("DEC-012")
@given(policy=POLICIES, members=MEMBERS)
def test_a_gate_opens_only_when_all_before_it_have_ended(policy: GroupFailurePolicy, members: list[Member]) -> None:
    for tip_id in policy.step(members).open_gates:
        index = next(m.sequence for m in members if m.tip_id == tip_id)
        assert policy.mode is GroupMode.SEQUENTIAL
        assert all(m.has_ended for m in members[:index])


@pytest.mark.rule("DEC-012")
@pytest.mark.parametrize(("on_failure", "ending"), list(product(OnFailure, (COMPLETED, SKIPPED, FAILED, CANCELLED))))
def test_a_sequential_group_goes_on_or_ends_as_its_policy_says(on_failure: OnFailure, ending: JobStatus) -> None:
    step = GroupFailurePolicy(GroupMode.SEQUENTIAL, on_failure).step([member(0, ending), gated(1), gated(2)])
    if ending in (COMPLETED, SKIPPED) or on_failure is OnFailure.CONTINUE:
        assert (step.open_gates, step.cancel, step.skip) == (("tip-1",), (), ())
        assert step.status is GroupStatus.RUNNING
        return
    rest = ("tip-1", "tip-2")
    assert step.cancel == (rest if on_failure is OnFailure.STOP else ())
    assert step.skip == (rest if on_failure is OnFailure.SKIP else ())
    assert step.reason == (PREDECESSOR_FAILED if ending is FAILED else PREDECESSOR_CANCELLED)
    stopped_by_request = ending is CANCELLED
    assert step.status is (GroupStatus.CANCELLED if stopped_by_request else GroupStatus.PARTIAL)


@pytest.mark.rule("GRP-02")
@pytest.mark.parametrize(("on_failure", "ending"), list(product(OnFailure, (COMPLETED, SKIPPED, FAILED, CANCELLED))))
def test_in_a_parallel_group_only_a_failure_for_good_ends_those_still_queued(
    on_failure: OnFailure, ending: JobStatus
) -> None:
    members = [member(0, ending), member(1, QUEUED), member(2, RUNNING)]
    step = GroupFailurePolicy(GroupMode.PARALLEL, on_failure).step(members)
    ends = ending is FAILED
    assert step.cancel == (("tip-1",) if ends and on_failure is OnFailure.STOP else ())
    assert step.skip == (("tip-1",) if ends and on_failure is OnFailure.SKIP else ())
    assert step.status is GroupStatus.RUNNING


@pytest.mark.rule("GRP-02", "DEC-012")
@pytest.mark.parametrize(("mode", "on_failure"), list(product(GroupMode, OnFailure)))
def test_a_failure_that_awaits_its_retry_changes_nothing(mode: GroupMode, on_failure: OnFailure) -> None:
    members = [member(0, FAILED, failed_for_good=False), gated(1)]
    step = GroupFailurePolicy(mode, on_failure).step(members)
    assert (step.open_gates, step.cancel, step.skip) == ((), (), ())
    assert step.status is GroupStatus.RUNNING


@pytest.mark.rule("INV-006", "CAN-02")
@pytest.mark.parametrize(("mode", "on_failure"), list(product(GroupMode, OnFailure)))
def test_a_cancelled_member_that_still_executes_holds_the_group_open(mode: GroupMode, on_failure: OnFailure) -> None:
    members = [member(0, CANCELLED, holds_lease=True), gated(1)]
    step = GroupFailurePolicy(mode, on_failure).step(members)
    assert (step.open_gates, step.cancel, step.skip) == ((), (), ())
    assert step.status is GroupStatus.RUNNING


@pytest.mark.rule("GRP-01")
@pytest.mark.parametrize(
    ("endings", "expected"),
    [
        ((COMPLETED, COMPLETED), GroupStatus.COMPLETED),
        ((COMPLETED, SKIPPED), GroupStatus.COMPLETED),
        ((SKIPPED, SKIPPED), GroupStatus.COMPLETED),
        ((CANCELLED, CANCELLED), GroupStatus.CANCELLED),
        ((COMPLETED, CANCELLED), GroupStatus.PARTIAL),
        ((FAILED, CANCELLED), GroupStatus.PARTIAL),
        ((FAILED, COMPLETED), GroupStatus.PARTIAL),
        ((FAILED, FAILED), GroupStatus.PARTIAL),
        ((SKIPPED, CANCELLED), GroupStatus.PARTIAL),
    ],
)
@pytest.mark.parametrize("mode", list(GroupMode))
def test_the_end_of_a_group_follows_from_the_ends_of_its_chains(
    mode: GroupMode, endings: tuple[JobStatus, ...], expected: GroupStatus
) -> None:
    members = [member(index, status) for index, status in enumerate(endings)]
    assert GroupFailurePolicy(mode, OnFailure.CONTINUE).step(members).status is expected


@pytest.mark.rule("GRP-01")
def test_a_group_is_queued_until_its_first_start() -> None:
    policy = GroupFailurePolicy(GroupMode.SEQUENTIAL, OnFailure.STOP)
    assert policy.step([member(0, QUEUED), gated(1)]).status is GroupStatus.QUEUED
    assert policy.step([member(0, RUNNING), gated(1)]).status is GroupStatus.RUNNING
