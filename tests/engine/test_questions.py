"""Handlers that ask people: the run ends, no slot is held, and the answer comes back."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from holdbeat import App
from holdbeat.domain.job import JobStatus
from holdbeat.store.durable.questions import answer_question
from holdbeat.store.reads.questions import open_questions
from tests.engine import durable_jobs
from tests.engine.acting import until, value

pytestmark = pytest.mark.asyncio


def _is_open(app: App, text: str) -> bool:
    return any(question.question == text for question in app.store.read_sync(open_questions).items)


@pytest.mark.rule("WAIT-05")
@pytest.mark.parametrize("kind", ["thread", "task", "process"])
async def test_a_handler_gets_the_answers_of_people(kind: str, store_url: str) -> None:
    app = App(store_url, slots=1, concurrency="unlimited", heartbeat_s=1, lease_s=10)
    app.job(name="thread", retries=0)(durable_jobs.asks)
    app.job(name="task", retries=0)(durable_jobs.asks_async)
    app.job(name="process", retries=0, isolation="process")(durable_jobs.asks)
    answers: dict[str, Any] = {"Send it?": "yes", "How many?": 3}
    async with app.running():
        handle = await app.enqueue(kind)
        for text, answer in answers.items():
            await until(partial(_is_open, app, text))
            await until(lambda: value(app.store, "SELECT count(*) FROM leases") == 0)
            question = app.store.read_sync(open_questions).items[0]
            await app.store.write(answer_question, question.id, answer, "ann")
        job = await handle.wait(40)
    assert job.run is not None
    assert job.status is JobStatus.COMPLETED, job.run.error
    assert job.run.result == ["yes", 3]
    app.close()
