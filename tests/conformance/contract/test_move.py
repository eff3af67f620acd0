"""DEC-005: positions, moves, and bulk reordering."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdbeat.domain.errors import Conflict, Invalid, NotFound
from holdbeat.domain.job import NewJob
from holdbeat.domain.position import GAP, POSITION_MAX
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.move import move_job, reorder
from tests.conformance.acts import (
    OpenStore,
    change,
    claim_all,
    claim_one,
    claim_some,
    enqueue_all,
    enqueue_one,
    events_of,
    fail,
    ids_of,
    job_of_claim,
    look,
    rows,
)


def line_up(store: PersistenceAdapter, count: int, **fields: Any) -> list[str]:
    """That many jobs in one priority, first to last."""
    return [job.id for job in enqueue_all(store, [NewJob("noop", **fields) for _ in range(count)])]


def order(store: PersistenceAdapter, priority: int = 0) -> list[str]:
    """QUEUED jobs of a priority as the claim would take them."""
    records = rows(
        store,
        "SELECT id FROM jobs WHERE status = 'QUEUED' AND priority = :priority ORDER BY position, created_at, id",
        priority=priority,
    )
    return [row[0] for row in records]


def positions(store: PersistenceAdapter) -> dict[str, int]:
    return {row[0]: row[1] for row in rows(store, "SELECT id, position FROM jobs")}


@pytest.mark.rule("DEC-005")
def test_a_job_moves_before_after_to_the_top_the_bottom_and_to_an_index(store: PersistenceAdapter) -> None:
    a, b, c, d = line_up(store, 4)
    store.write_sync(move_job, d, before=b)
    assert order(store) == [a, d, b, c]
    store.write_sync(move_job, a, after=b)
    assert order(store) == [d, b, a, c]
    store.write_sync(move_job, c, to="top")
    assert order(store) == [c, d, b, a]
    store.write_sync(move_job, d, to="bottom")
    assert order(store) == [c, b, a, d]
    store.write_sync(move_job, c, to=2)
    assert order(store) == [b, a, c, d]
    moved = store.write_sync(move_job, d, to=0)
    assert order(store) == [d, b, a, c]
    assert moved.id == d
    assert ids_of(claim_all(store)) == [d, b, a, c]


@pytest.mark.rule("DEC-005")
@pytest.mark.parametrize("to", ["top", "bottom", 2, 0])
def test_a_move_with_room_changes_one_row(store: PersistenceAdapter, to: str | int) -> None:
    ids = line_up(store, 5)
    before = positions(store)
    store.write_sync(move_job, ids[1] if to != 0 else ids[4], to=to)
    after = positions(store)
    assert sum(before[id_] != after[id_] for id_ in ids) == 1
    assert len(events_of(store, "job.moved")) == 1


@pytest.mark.rule("DEC-005")
def test_a_job_that_stands_there_already_is_left_alone(store: PersistenceAdapter) -> None:
    a, b, c = line_up(store, 3)
    before = positions(store)
    for target in ({"to": "top"}, {"to": 0}, {"before": b}):
        store.write_sync(move_job, a, **target)
    for target in ({"to": "bottom"}, {"to": 2}, {"after": b}):
        store.write_sync(move_job, c, **target)
    assert positions(store) == before
    assert events_of(store, "job.moved") == []


@pytest.mark.rule("DEC-005")
def test_a_used_up_gap_renumbers_the_priority_and_keeps_the_order(store: PersistenceAdapter) -> None:
    a, b, *others = line_up(store, 12)
    other_priority = enqueue_one(store, priority=7)
    running = job_of_claim(claim_one(store, types=["noop"]))
    assert running.id == other_priority.id
    expected = [a, b, *others]
    for other in others:
        store.write_sync(move_job, other, before=b)
        expected.remove(other)
        expected.insert(expected.index(b), other)
        assert order(store) == expected
    values = [positions(store)[item] for item in expected]
    assert values == sorted(set(values))
    assert look(store, other_priority.id).position == other_priority.position


@pytest.mark.rule("DEC-005", "RET-02")
def test_renumbering_takes_running_jobs_along_so_that_a_retry_finds_its_place(store: PersistenceAdapter) -> None:
    ids = line_up(store, 4)
    taken = claim_one(store)
    assert job_of_claim(taken).id == ids[0]
    change(store, "UPDATE jobs SET position = position - :by", by=1000)
    change(store, "UPDATE jobs SET position = :p WHERE id = :id", id=ids[1], p=-850)
    change(store, "UPDATE jobs SET position = :p WHERE id = :id", id=ids[2], p=-849)
    store.write_sync(move_job, ids[3], before=ids[2])
    assert order(store) == [ids[1], ids[3], ids[2]]
    assert look(store, ids[0]).position < look(store, ids[1]).position
    fail(store, taken)
    retry = look(store, ids[0]).retried_by
    assert order(store) == [retry, ids[1], ids[3], ids[2]]


@pytest.mark.rule("DEC-005", "RET-02")
def test_nobody_is_put_on_the_place_of_a_running_job(store: PersistenceAdapter) -> None:
    ids = line_up(store, 4)
    taken = claim_some(store, 2)
    store.write_sync(move_job, ids[3], before=ids[2])
    assert look(store, ids[1]).position < look(store, ids[3]).position < look(store, ids[2]).position
    store.write_sync(move_job, ids[2], to="top")
    assert look(store, ids[2]).position < look(store, ids[0]).position
    for item in taken:
        fail(store, item)
    assert len(set(positions(store).values())) == 4


@pytest.mark.rule("DEC-005", "RET-02")
def test_the_top_is_ahead_of_the_retry_of_what_runs(store: PersistenceAdapter) -> None:
    first, second = line_up(store, 2)
    taken = claim_one(store)
    store.write_sync(move_job, second, to="top")
    fail(store, taken)
    assert order(store) == [second, look(store, first).retried_by]


@pytest.mark.rule("DEC-005")
def test_what_is_enqueued_after_a_move_to_the_bottom_stands_behind_it(store: PersistenceAdapter) -> None:
    a, b = line_up(store, 2)
    store.write_sync(move_job, a, to="bottom")
    (c,) = line_up(store, 1)
    store.write_sync(move_job, b, after=c)
    (d,) = line_up(store, 1)
    assert order(store) == [a, c, b, d]
    assert len(set(positions(store).values())) == 4


@pytest.mark.rule("DEC-005")
def test_a_move_between_jobs_of_equal_position_gives_them_an_order(store: PersistenceAdapter) -> None:
    a, b, c, d = line_up(store, 4)
    change(store, "UPDATE jobs SET position = 500 WHERE id IN :ids", ids=[a, b, c])
    store.write_sync(move_job, d, before=b)
    assert order(store) == [a, d, b, c]
    store.write_sync(move_job, a, after=b)
    assert order(store) == [d, b, a, c]


@pytest.mark.rule("DEC-005")
@pytest.mark.parametrize("place", [-POSITION_MAX, -POSITION_MAX + 1, -(2**63)])
def test_the_head_is_renumbered_when_its_numbers_are_used_up(store: PersistenceAdapter, place: int) -> None:
    a, b, c = line_up(store, 3)
    change(store, "UPDATE jobs SET position = :place WHERE id = :id", id=a, place=place)
    store.write_sync(move_job, c, to="top")
    assert order(store) == [c, a, b]
    assert [positions(store)[item] for item in (c, a, b)] == [GAP, 2 * GAP, 3 * GAP]


@pytest.mark.rule("DEC-005")
def test_the_tail_is_renumbered_when_its_numbers_are_used_up(store: PersistenceAdapter) -> None:
    a, b, c = line_up(store, 3)
    change(store, "UPDATE jobs SET position = :place WHERE id = :id", id=c, place=2**63 - 1)
    store.write_sync(move_job, a, to="bottom")
    assert order(store) == [b, c, a]
    (d,) = line_up(store, 1)
    assert order(store) == [b, c, a, d]


@pytest.mark.rule("DEC-005")
def test_only_queued_jobs_of_one_priority_can_be_moved(store: PersistenceAdapter) -> None:
    a, b = line_up(store, 2)
    (other,) = line_up(store, 1, priority=3)
    with pytest.raises(Conflict) as refusal:
        store.write_sync(move_job, a, before=other)
    assert refusal.value.code == "other_priority"
    claim_some(store, 2)
    with pytest.raises(Conflict) as refusal:
        store.write_sync(move_job, a, to="top")
    assert refusal.value.code == "not_queued"
    with pytest.raises(Conflict):
        store.write_sync(move_job, b, after=a)
    with pytest.raises(NotFound):
        store.write_sync(move_job, "nobody", to="top")
    with pytest.raises(NotFound):
        store.write_sync(move_job, b, before="nobody")


@pytest.mark.rule("DEC-005")
@pytest.mark.parametrize(
    "where",
    [
        {},
        {"to": -1},
        {"to": 2},
        {"to": 2**63 - 1},
        {"to": 2**70},
        {"to": "middle"},
        {"to": True},
        {"to": 0.5},
        {"to": "top", "before": "x"},
        {"before": "itself"},
    ],
)
def test_a_place_that_does_not_exist_is_refused(store: PersistenceAdapter, where: dict[str, Any]) -> None:
    a, b = line_up(store, 2)
    before = positions(store)
    if where.get("before") == "itself":
        where = {"before": a}
    with pytest.raises(Invalid):
        store.write_sync(move_job, a, **where)
    assert positions(store) == before
    assert order(store) == [a, b]


@pytest.mark.rule("DEC-005")
def test_reordering_permutes_the_listed_jobs_among_their_own_places(store: PersistenceAdapter) -> None:
    a, b, c, d, e = line_up(store, 5)
    before = positions(store)
    listed = store.write_sync(reorder, [e, c, a])
    assert [job.id for job in listed] == [e, c, a]
    assert order(store) == [e, b, c, d, a]
    after = positions(store)
    assert {item for item in before if before[item] != after[item]} == {a, e}
    assert sorted(before.values()) == sorted(after.values())


@pytest.mark.rule("DEC-005")
def test_reordering_works_among_equal_places_too(store: PersistenceAdapter) -> None:
    a, b, c, d = line_up(store, 4)
    change(store, "UPDATE jobs SET position = 500 WHERE id IN :ids", ids=[a, b, c])
    store.write_sync(reorder, [c, a])
    assert sorted(order(store)) == sorted([a, b, c, d])
    placed = order(store)
    assert placed.index(c) < placed.index(b) < placed.index(a)


@pytest.mark.rule("DEC-005")
def test_a_reordering_that_names_a_wrong_job_changes_nothing(store: PersistenceAdapter) -> None:
    a, b, c = line_up(store, 3)
    (other,) = line_up(store, 1, priority=3)
    before = positions(store)
    for listed, error in (
        ([b, a, other], Conflict),
        ([b, a, "nobody"], NotFound),
        ([b, a, b], Invalid),
        ([], Invalid),
    ):
        with pytest.raises(error):
            store.write_sync(reorder, listed)
    claim_some(store, 2)
    with pytest.raises(Conflict):
        store.write_sync(reorder, [c, a])
    assert positions(store) == before


@pytest.mark.rule("DEC-005")
def test_many_who_move_at_once_lose_nobody_and_put_no_two_on_one_place(open_store: OpenStore) -> None:
    stores = [open_store() for _ in range(3)]
    ids = line_up(stores[0], 12)
    errors: list[BaseException] = []

    def go(store: PersistenceAdapter, seed: int) -> None:
        dice = random.Random(seed)
        try:
            for _ in range(25):
                mover, other = dice.sample(ids, 2)
                where: dict[str, Any] = dice.choice(
                    [{"before": other}, {"after": other}, {"to": "top"}, {"to": "bottom"}, {"to": dice.randrange(12)}]
                )
                store.write_sync(move_job, mover, **where)
                store.write_sync(reorder, dice.sample(ids, 3))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=go, args=(store, seed)) for seed, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(order(stores[0])) == sorted(ids)
    assert len(set(positions(stores[0]).values())) == 12


@pytest.mark.rule("DEC-005")
def test_the_head_takes_any_number_of_jobs_without_renumbering(store: PersistenceAdapter) -> None:
    ids = line_up(store, 3)
    for number in range(300):
        before = positions(store)
        store.write_sync(move_job, ids[(number + 1) % 3], to="top")
        after = positions(store)
        assert sum(before[id_] != after[id_] for id_ in ids) == 1
    assert min(after.values()) == -300 * GAP + GAP


MOVES = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.one_of(
            st.sampled_from(["top", "bottom"]),
            st.integers(0, 5),
            st.tuples(st.sampled_from(["before", "after"]), st.integers(0, 5)),
            st.permutations(range(6)).map(lambda order: ("reorder", tuple(order[:3]))),
        ),
    ),
    min_size=1,
    max_size=14,
)


@pytest.mark.rule("DEC-005")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=MOVES, squeezed=st.booleans())
def test_any_moves_give_the_order_that_a_list_would_have(
    store: PersistenceAdapter, moves: list[tuple[int, Any]], squeezed: bool
) -> None:
    change(store, "DELETE FROM jobs WHERE status = 'QUEUED'")
    ids = line_up(store, 6)
    if squeezed:
        # Places without room between them: nearly every move has to renumber.
        for number, each in enumerate(ids):
            change(store, "UPDATE jobs SET position = :place WHERE id = :id", id=each, place=number // 2)
    model = list(ids)
    for mover, where in moves:
        job = ids[mover]
        if isinstance(where, tuple) and where[0] == "reorder":
            listed = [ids[number] for number in where[1]]
            places = sorted(model.index(item) for item in listed)
            store.write_sync(reorder, listed)
            for place, each in zip(places, listed, strict=True):
                model[place] = each
        elif isinstance(where, tuple):
            other = ids[where[1]]
            if other == job:
                continue
            store.write_sync(move_job, job, **{where[0]: other})
            model.remove(job)
            model.insert(model.index(other) + (where[0] == "after"), job)
        else:
            store.write_sync(move_job, job, to=where)
            model.remove(job)
            model.insert({"top": 0, "bottom": 5}.get(where, where), job)
        assert order(store) == model


@pytest.mark.rule("DEC-005")
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_place_beside_nobody_is_refused_by_name(store: PersistenceAdapter, side: str) -> None:
    job = enqueue_one(store)
    with pytest.raises(Invalid) as refusal:
        store.write_sync(move_job, job.id, **{side: ""})
    assert (refusal.value.code, refusal.value.field) == ("invalid_id", side)
