"""Questions: asked once in a chain, answered once, and no answer is lost."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, Invalid, NotFound
from holdbeat.domain.job import Hold, RetryPolicy
from holdbeat.domain.lease import Claim
from holdbeat.domain.run import Outcome
from holdbeat.domain.waits import Wait, WaitKind
from holdbeat.observe.explain import explain_job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.questions import Asked, answer_question, ask_question
from holdbeat.store.durable.steps import LeaseGone
from holdbeat.store.reads.chains import tip_of
from holdbeat.store.reads.questions import count_open_questions, open_questions
from holdbeat.store.recovery.prune import prune
from holdbeat.store.running.settle import settle
from tests.conformance.acts import (
    OpenStore,
    cancel,
    claim_one,
    complete,
    count,
    enqueue_one,
    fail,
    job_of_claim,
    look,
    settle_as,
    settlement,
)
from tests.conformance.races import HeldOpen, in_background, together


def asked(taken: Claim, text: str = "Send it?", key: str = "$ask:1", **fields: Any) -> Asked:
    lease, job = taken.lease, job_of_claim(taken)
    return Asked(lease.id, lease.worker_id, lease.fence, job.id, job.chain_id, key, text, **fields)


def ask(store: PersistenceAdapter, taken: Claim, text: str = "Send it?", **fields: Any) -> str:
    return str(store.write_sync(ask_question, asked(taken, text, **fields))["id"])


def waiting_for(question_id: str) -> Outcome:
    return Outcome.continued((Wait(WaitKind.QUESTION, "$ask:1", name=question_id),))


@pytest.mark.rule("WAIT-05")
def test_a_question_is_asked_once_in_a_chain_and_the_handler_goes_on_with_the_answer(store: PersistenceAdapter) -> None:
    job = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=2, base_delay_s=0), title="the mail")
    taken = claim_one(store)
    question_id = ask(store, taken, choices=["yes", "no"])
    fail(store, taken)
    taken = claim_one(store)
    assert ask(store, taken, choices=["yes", "no"]) == question_id
    settle_as(store, taken, waiting_for(question_id))
    following = look(store, store.read_sync(tip_of, job.id))
    assert following.waits_for == {"kind": "question", "until": None, "question_id": question_id}
    assert "Send it?" in store.read_sync(explain_job, following.id)["summary"]
    listed = store.read_sync(open_questions).items
    assert [(item.id, item.root_id, item.title, item.choices) for item in listed] == [
        (question_id, job.id, "the mail", ["yes", "no"])
    ]
    answered = store.write_sync(answer_question, question_id, "yes", "ann")
    assert (answered.answer, answered.answered_by) == ("yes", "ann")
    assert look(store, following.id).hold is Hold.READY
    assert store.read_sync(open_questions).items == []
    standing = store.write_sync(ask_question, asked(claim_one(store), choices=["yes", "no"]))
    assert standing == {"id": question_id, "is_answered": True, "answer": "yes"}


@pytest.mark.rule("WAIT-05")
def test_answers_that_do_not_fit_come_twice_or_too_late_are_refused(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    taken = claim_one(store)
    choice = ask(store, taken, choices=["yes", "no"])
    number = ask(store, taken, "How many?", key="$ask:2", schema={"type": "integer", "minimum": 1})
    for question_id, wrong in ((choice, "perhaps"), (choice, None), (number, "three"), (number, 0)):
        with pytest.raises(Invalid):
            store.write_sync(answer_question, question_id, wrong)
    with pytest.raises(NotFound):
        store.write_sync(answer_question, "01890a5d-ac96-774b-bcce-b302099a8057", "yes")
    store.write_sync(answer_question, number, 3, "ann")
    with pytest.raises(Conflict, match="answered already by ann"):
        store.write_sync(answer_question, number, 4)
    cancel(store, job.id)
    assert store.read_sync(open_questions).items == []
    with pytest.raises(Conflict, match="has ended"):
        store.write_sync(answer_question, choice, "yes")
    complete(store, taken)
    with pytest.raises(LeaseGone):
        ask(store, taken, "Late?", key="$ask:3")


@pytest.mark.rule("WAIT-05")
def test_an_answer_and_the_wait_for_it_never_miss_each_other(store: PersistenceAdapter, open_store: OpenStore) -> None:
    other = open_store()
    for _ in range(50):
        job = enqueue_one(store)
        taken = claim_one(store)
        question_id = ask(store, taken)
        acts: list[Any] = [
            partial(settle_as, store, taken, waiting_for(question_id)),
            partial(other.write_sync, answer_question, question_id, "yes"),
        ]
        assert not [result for result in together(acts) if isinstance(result, Exception)]
        assert look(store, store.read_sync(tip_of, job.id)).hold is Hold.READY
        complete(store, claim_one(store))
    job = enqueue_one(store)
    taken = claim_one(store)
    question_id = ask(store, taken)
    with HeldOpen(store, settle, [settlement(taken, waiting_for(question_id))]) as held:
        answering = in_background(partial(other.write_sync, answer_question, question_id, "yes"))
        held.commit()
    answering.result(30)
    assert look(store, store.read_sync(tip_of, job.id)).hold is Hold.READY


@pytest.mark.rule("WAIT-05")
def test_of_two_that_answer_at_once_one_is_refused(store: PersistenceAdapter, open_store: OpenStore) -> None:
    other = open_store()
    enqueue_one(store)
    question_id = ask(store, claim_one(store))
    acts = [partial(each.write_sync, answer_question, question_id, n) for n, each in enumerate((store, other))]
    results = together(acts)
    assert sum(isinstance(result, Conflict) for result in results) == 1


@pytest.mark.rule("WAIT-05", "API-03")
def test_every_open_question_is_on_one_page_of_the_list(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store)
    taken = claim_one(store)
    asked_ids = []
    for number in range(9):
        asked_ids.append(ask(store, taken, f"Send {number}?", key=f"$ask:{number}"))
        clock.advance(0.001 if number % 2 else 0)
    assert store.read_sync(count_open_questions) == 9
    page = store.read_sync(open_questions, limit=3)
    listed = [question.id for question in page.items]
    for answered_meanwhile in (0, 2, 3):
        store.write_sync(answer_question, asked_ids[answered_meanwhile], "yes")
    while page.next_cursor is not None:
        page = store.read_sync(open_questions, limit=3, cursor=page.next_cursor)
        listed += [question.id for question in page.items]
    assert listed == asked_ids[:3] + asked_ids[4:]
    with pytest.raises(Invalid, match="cursor"):
        store.read_sync(open_questions, cursor="changed")


@pytest.mark.rule("WAIT-05", "QUE-07")
def test_questions_go_with_their_chain(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store)
    taken = claim_one(store)
    ask(store, taken)
    complete(store, taken)
    clock.advance(1000)
    store.write_sync(prune, clock.now())
    assert (count(store, "questions"), count(store, "jobs")) == (0, 0)
