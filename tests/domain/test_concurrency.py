"""ConcurrencyPolicy and Capacity: how many at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.concurrency import Capacity, ConcurrencyPolicy, PolicyKind
from holdbeat.domain.errors import SettingsError

NAMES = st.text("abcdefgh-_.", min_size=1, max_size=6)
SLOTS = st.dictionaries(NAMES, st.integers(0, 50), max_size=6)
POLICIES = st.one_of(
    st.builds(ConcurrencyPolicy, st.sampled_from([PolicyKind.RESOURCES, PolicyKind.PER_TYPE]), SLOTS),
    st.builds(lambda total: ConcurrencyPolicy(PolicyKind.GLOBAL, {}, total), st.integers(0, 50)),
    st.just(ConcurrencyPolicy(PolicyKind.UNLIMITED, {})),
)
WORK = st.lists(st.tuples(NAMES, NAMES, st.integers(0, 30)), max_size=8)


@pytest.mark.rule("DEC-011")
@given(policy=POLICIES)
def test_a_policy_written_down_reads_back_the_same(policy: ConcurrencyPolicy) -> None:
    assert ConcurrencyPolicy.parse(str(policy)) == policy


@pytest.mark.rule("DEC-011")
def test_the_default_is_one_job_per_resource_and_sixteen_http_calls() -> None:
    policy = ConcurrencyPolicy()
    assert policy == ConcurrencyPolicy.parse("resources:default=1,http=16")
    assert [policy.limit(name) for name in ("default", "http", "never-listed")] == [1, 16, 1]


@pytest.mark.rule("DEC-011")
def test_each_kind_of_policy_draws_from_its_own_pools() -> None:
    expected = {"resources:": "gpu", "per_type:": "story", "global:4": "*", "unlimited": None}
    assert {text: ConcurrencyPolicy.parse(text).pool("gpu", "story") for text in expected} == expected


@pytest.mark.rule("DEC-011")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "everything",
        "resources:gpu",
        "resources:=1",
        "resources:gpu=1,gpu=2",
        "resources:gpu=-1",
        "resources:gpu=many",
        "per_type:a=1.5",
        "global:",
        "global:-3",
        "global:1000001",
        "unlimited:4",
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_with_its_setting(text: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        ConcurrencyPolicy.parse(text)
    assert refusal.value.field == "concurrency"


@pytest.mark.rule("CON-002", "CAP-01")
@given(policy=POLICIES, leases=WORK, wishes=st.lists(st.tuples(NAMES, NAMES), max_size=80))
def test_taking_only_what_is_free_never_exceeds_a_limit(
    policy: ConcurrencyPolicy, leases: list[tuple[str, str, int]], wishes: list[tuple[str, str]]
) -> None:
    capacity = Capacity(policy, leases)
    used: dict[str | None, int] = {}
    for resource, type_, count in leases:
        pool = policy.pool(resource, type_)
        used[pool] = used.get(pool, 0) + count
    for resource, type_ in wishes:
        pool = policy.pool(resource, type_)
        limit = policy.limit(pool)
        free = capacity.free(resource, type_)
        assert (free is None) == (limit is None)
        if free is None or limit is None:
            continue
        assert free == max(0, limit - used.get(pool, 0))
        if free:
            capacity.take(resource, type_)
            used[pool] = used.get(pool, 0) + 1
            assert used[pool] <= limit


@pytest.mark.rule("DEC-004")
@given(policy=POLICIES, leases=WORK, waiting=WORK, resource=NAMES, type_=NAMES)
def test_a_job_takes_a_slot_only_while_free_slots_outnumber_waiting_requests(
    policy: ConcurrencyPolicy,
    leases: list[tuple[str, str, int]],
    waiting: list[tuple[str, str, int]],
    resource: str,
    type_: str,
) -> None:
    capacity = Capacity(policy, leases, waiting)
    free, for_jobs = capacity.free(resource, type_), capacity.free_for_jobs(resource, type_)
    if free is None:
        assert for_jobs is None
        return
    pool = policy.pool(resource, type_)
    ahead = sum(count for r, t, count in waiting if policy.pool(r, t) == pool)
    assert for_jobs == max(0, free - ahead)
    if ahead and free:
        capacity.grant(resource, type_)
        assert capacity.free_for_jobs(resource, type_) == for_jobs
