"""Limits, the policies that stand for some, and Capacity: how many at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.capacity import Capacity, Usage
from holdbeat.domain.concurrency import ConcurrencyPolicy, PolicyKind
from holdbeat.domain.errors import Invalid, SettingsError
from holdbeat.domain.limit import EACH, Limit, Limits, limit_of
from holdbeat.domain.rate import Rate
from holdbeat.settings import Settings

NAMES = st.text("abcdefgh-_.", min_size=1, max_size=6)
SLOTS = st.dictionaries(NAMES, st.integers(0, 50), max_size=6)
POLICIES = st.one_of(
    st.builds(ConcurrencyPolicy, st.sampled_from([PolicyKind.RESOURCES, PolicyKind.PER_TYPE]), SLOTS),
    st.builds(lambda total: ConcurrencyPolicy(PolicyKind.GLOBAL, {}, total), st.integers(0, 50)),
    st.just(ConcurrencyPolicy(PolicyKind.UNLIMITED, {})),
)
LIMITS = st.one_of(
    POLICIES.map(ConcurrencyPolicy.limits),
    st.lists(
        st.builds(
            Limit,
            NAMES,
            st.one_of(st.none(), NAMES),
            st.one_of(st.none(), NAMES),
            st.one_of(st.none(), st.integers(0, 50)),
        ),
        max_size=8,
    ).map(lambda limits: Limits([*limits, Limit("each:resource", EACH, slots=1)])),
)
# Each weighs one and has no partition: for a named tuple Hypothesis makes up the fields that are left out.
WORK = st.lists(st.builds(Usage, NAMES, NAMES, st.integers(0, 30), st.just(""), st.none()), max_size=8)


@pytest.mark.rule("DEC-011")
@given(policy=POLICIES)
def test_a_policy_written_down_reads_back_the_same(policy: ConcurrencyPolicy) -> None:
    assert ConcurrencyPolicy.parse(str(policy)) == policy


@pytest.mark.rule("DEC-011")
def test_the_default_is_one_job_per_resource_and_256_http_calls() -> None:
    policy = ConcurrencyPolicy()
    assert policy == ConcurrencyPolicy.parse("resources:default=1,http=256")
    assert policy == ConcurrencyPolicy.parse(Settings().concurrency)
    limits = policy.limits()
    assert [limits.slots_of(name) for name in ("default", "http", "never-listed")] == [1, 256, 1]


@pytest.mark.rule("LIM-14")
def test_one_host_has_128_slots_where_http_has_more() -> None:
    each_host = Limit("each:host", resource="http", type="http", slots=128, per_partition=True)
    for text in ("resources:default=1,http=256", "resources:http=129", "per_type:story=2"):
        limits = ConcurrencyPolicy.parse(text).limits()
        assert each_host in limits
        assert "each:host" in {pool.key for pool in limits.covering("http", "http")}
        assert "each:host" not in {pool.key for pool in limits.covering("http", "other")}
    for text in ("resources:http=128", "resources:gpu=1", "global:1000", "unlimited"):
        assert "each:host" not in {limit.name for limit in ConcurrencyPolicy.parse(text).limits()}


@pytest.mark.rule("DEC-011", "LIM-01")
def test_each_kind_of_policy_draws_from_its_own_pools() -> None:
    expected = {
        "resources:": {"each:resource/gpu"},
        "resources:gpu=2": {"gpu"},
        "per_type:": {"each:type/story", "each:resource/gpu"},
        "per_type:story=2": {"type:story", "each:resource/gpu"},
        "global:4": {"global"},
        "unlimited": set(),
    }
    for text, keys in expected.items():
        pools = ConcurrencyPolicy.parse(text).limits().covering("gpu", "story")
        assert {pool.key for pool in pools} == keys


@pytest.mark.rule("LIM-01")
def test_with_slots_per_type_a_resource_still_runs_one_at_a_time_and_default_is_left_to_the_types() -> None:
    limits = ConcurrencyPolicy.parse("per_type:story=2,image=3").limits()
    capacity = Capacity(limits, [Usage("ollama", "story", 1)])
    assert capacity.free("ollama", "story") == 0
    assert capacity.free("ollama", "image") == 0
    assert capacity.free("default", "story") == 1
    assert capacity.free("default", "image") == 3
    assert capacity.free("default", "other") == 1


@pytest.mark.rule("LIM-01")
def test_a_rate_alone_does_not_list_its_resource_but_slots_or_no_limit_do() -> None:
    each = Limit("each", EACH, slots=1)
    assert Limits([each, Limit("api", "api", rate=Rate(60, 60))]).slots_of("api") == 1
    assert Limits([each, Limit("api", "api", slots=4)]).slots_of("api") == 4
    assert Limits([each, Limit("api", "api")]).slots_of("api") is None
    assert Limits([each, Limit("api-story", "api", "story", slots=4)]).slots_of("api", "story") == 1


@pytest.mark.rule("LIM-01")
@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"slots": -1}, "slots"),
        ({"slots": True}, "slots"),
        ({"slots": 1.5}, "slots"),
        ({"slot": 1}, "slot"),
        ({"resource": ""}, "resource"),
        ({"resource": "*", "type": "a"}, "type"),
        ({"rate": 5}, "rate"),
        ({"rate": {"count": 5}}, "rate"),
        ({"rate": {"count": 0, "per_s": 1}}, "rate.count"),
        ({"rate": {"count": 1, "per_s": 0}}, "rate.per_s"),
        ({"rate": {"count": 1, "per_s": 1, "burst": -1}}, "rate.burst"),
        ({"fair": "yes"}, "fair"),
        ({"weights": {"acme": 3}}, "weights"),
        ({"weights": {"acme": 0}, "fair": True}, "weights.acme"),
    ],
)
def test_an_impossible_limit_is_refused_by_the_name_of_its_field(values: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        limit_of("gpu", values)
    assert refusal.value.field == field


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


@pytest.mark.rule("CON-002", "CAP-01", "LIM-01")
@given(limits=LIMITS, leases=WORK, wishes=st.lists(st.tuples(NAMES, NAMES), max_size=80))
def test_taking_only_what_is_free_never_exceeds_any_limit(
    limits: Limits, leases: list[Usage], wishes: list[tuple[str, str]]
) -> None:
    capacity = Capacity(limits, leases)
    used: dict[str, int] = {}

    def add(resource: str, type_: str, count: int) -> None:
        for pool in limits.covering(resource, type_):
            used[pool.key] = used.get(pool.key, 0) + count

    for lease in leases:
        add(lease.resource, lease.type, lease.amount)
    for resource, type_ in wishes:
        pools = [pool for pool in limits.covering(resource, type_) if pool.limit.slots is not None]
        free = capacity.free(resource, type_)
        assert (free is None) == (not pools)
        if free is None:
            continue
        assert free == min(max(0, (pool.limit.slots or 0) - used.get(pool.key, 0)) for pool in pools)
        if free:
            capacity.take(resource, type_)
            add(resource, type_, 1)
            assert all(used[pool.key] <= (pool.limit.slots or 0) for pool in pools)


@pytest.mark.rule("DEC-004")
@given(limits=LIMITS, leases=WORK, waiting=WORK, resource=NAMES, type_=NAMES)
def test_a_job_takes_a_slot_only_while_free_slots_outnumber_waiting_requests(
    limits: Limits,
    leases: list[Usage],
    waiting: list[Usage],
    resource: str,
    type_: str,
) -> None:
    capacity = Capacity(limits, leases, waiting)
    alone = Capacity(limits, leases)
    for_jobs = capacity.free_for_jobs(resource, type_)
    if capacity.free(resource, type_) is None:
        assert for_jobs is None
        return
    pools = [pool for pool in limits.covering(resource, type_) if pool.limit.slots is not None]
    ahead = {pool.key: sum(n for r, t, n, _, _ in waiting if pool in limits.covering(r, t)) for pool in pools}
    assert for_jobs == min(max(0, (pool.limit.slots or 0) - alone.used(pool) - ahead[pool.key]) for pool in pools)
    if capacity.free(resource, type_) and any(ahead.values()):
        capacity.grant(resource, type_)
        assert capacity.free_for_jobs(resource, type_) == for_jobs
