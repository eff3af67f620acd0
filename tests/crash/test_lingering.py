"""Threads that handlers leave behind cannot keep a process from ending (CON-003)."""

from __future__ import annotations

import signal

import pytest

from tests.crash import lingering
from tests.crash.processes import Field
from tests.engine.acting import rows
from tests.waiting import eventually


@pytest.mark.rule("CON-003")
@pytest.mark.parametrize(("name", "thread"), [("executor_thread", "asyncio_"), ("own_thread", "left-behind")])
def test_a_thread_that_a_handler_leaves_behind_cannot_keep_the_process_from_ending(
    ground: Field, name: str, thread: str
) -> None:
    ground.app._types = lingering.app._types
    process = ground.start(program_app="tests.crash.lingering:app", shutdown_grace_s=0.5)
    ground.app.with_options(cancel_grace=0.3).enqueue_sync(name, diary=ground.diary)
    eventually(lambda: ground.noted("begun"), details=process.output)
    process.send(signal.SIGTERM)
    assert process.exit_code(30) == 0
    assert "the process ends although these threads go on: " in process.output()
    assert thread in process.output().splitlines()[-1]
    assert rows(ground.store, "SELECT id FROM workers WHERE stopped_at IS NULL") == []
    assert rows(ground.store, "SELECT id FROM leases") == []
