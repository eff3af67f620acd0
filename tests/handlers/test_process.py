"""Functions in a process of their own: whatever they do, one run fails and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdbeat.domain.errors import Invalid
from holdbeat.domain.run import ErrorKind, Outcome, RunStatus
from holdbeat.handlers.context import TRUNCATED
from holdbeat.handlers.job_type import JobType
from holdbeat.handlers.process import ProcessHandler
from tests.engine import misbehaviours as bad
from tests.engine.acting import until
from tests.engine.handler_stage import Stage, is_alive, marked, on_stage

pytestmark = pytest.mark.asyncio


async def run(function: Callable[..., Any], **params: Any) -> Outcome:
    return await on_stage(function, "process").run(**params)


@pytest.mark.rule("EXE-01", "EXE-03")
async def test_a_function_in_a_process_has_the_whole_context() -> None:
    stage = on_stage(bad.talks, "process", timeout_s=100)
    outcome = await stage.run()
    assert outcome.status is RunStatus.COMPLETED, outcome.error
    assert outcome.result == {
        "job": "01890000-0000-7000-8000-00000000abcd",
        "labels": {"team": "night"},
        "created_at": "2026-01-01T00:00:00.000Z",
        "fence": 41,
        "attempt": 2,
        "run_id": stage.run_id,
        "has_time": True,
        "pid": outcome.result["pid"],
        "mark": True,
    }
    assert outcome.result["pid"] != os.getpid()
    assert stage.script.progressed == [(0.5, "half")]
    assert stage.script.text("log") == "hello 42\n"
    assert stage.script.text("stdout") == "printed\nwithout an end of line"
    assert stage.script.text("stderr") == "complained\n"
    assert stage.script.artifacts == {"notes.txt": b"from bytes", "page.html": b"from a path"}


@pytest.mark.rule("EXE-01", "QUE-06")
async def test_params_arrive_in_the_process_as_the_annotated_types() -> None:
    outcome = await run(
        bad.typed,
        words=3,
        tone="dry",
        plot={"title": "The Well", "due": "2026-01-01T00:00:00Z"},
        pause="1m30s",
    )
    assert outcome.result == {
        "kinds": ["int", "Tone", "Plot", "datetime"],
        "pause_s": 90.0,
        "plot": {"title": "The Well", "due": "2026-01-01T00:00:00.000Z"},
    }


@pytest.mark.rule("EXE-01")
async def test_a_coroutine_function_can_have_a_process_too() -> None:
    stage = on_stage(bad.gathers, "process")
    assert (await stage.run(n=10)).result == 45
    assert stage.script.text("log") == "async in a process\n"


@pytest.mark.rule("EXE-03")
async def test_an_artifact_that_the_worker_refuses_is_refused_in_the_process() -> None:
    outcome = await run(bad.keeps_refused_artifact)
    assert outcome.result == "Invalid: the artifact is too large"


@pytest.mark.rule("EXE-02")
async def test_params_that_do_not_fit_are_rejected_without_a_call() -> None:
    outcome = await run(bad.gathers, n="ten")
    assert (outcome.status, outcome.error_kind) == (RunStatus.FAILED, ErrorKind.REJECTED)
    assert outcome.error == "params.n must be an integer, not a string."


ENDS: list[tuple[Callable[..., Any], dict[str, Any], ErrorKind, str, int | None]] = [
    (bad.raises_value_error, {}, ErrorKind.ERROR, "ValueError: bad � value �", None),
    (bad.calls_sys_exit, {"code": 0}, ErrorKind.ERROR, "SystemExit: 0", None),
    (bad.calls_sys_exit_async, {"code": 0}, ErrorKind.ERROR, "SystemExit: 0", None),
    (bad.raises_keyboard_interrupt, {}, ErrorKind.ERROR, "KeyboardInterrupt", None),
    (bad.raises_cancelled_error, {}, ErrorKind.ERROR, "asyncio.exceptions.CancelledError: by itself", None),
    (bad.raises_permanent_failure, {}, ErrorKind.REJECTED, "no such page", None),
    (bad.os_exit, {"code": 0}, ErrorKind.EXIT, "ended without a result (exit code 0", 0),
    (bad.os_exit, {"code": 3}, ErrorKind.EXIT, "exit code 3", 3),
    (bad.segfaults, {}, ErrorKind.EXIT, "killed by SIGSEGV", -11),
    (bad.aborts, {}, ErrorKind.EXIT, "killed by SIGABRT", -6),
    (bad.killed_from_outside, {}, ErrorKind.EXIT, "killed by SIGKILL", -9),
    (bad.eats_memory, {}, ErrorKind.ERROR, "MemoryError", None),
    (bad.exhausts_descriptors, {}, ErrorKind.ERROR, "Too many open files", None),
    (bad.closes_every_descriptor, {}, ErrorKind.EXIT, "ended without a result", None),
    (bad.returns_bytes, {}, ErrorKind.ERROR, "Unserialisable result: result is bytes", None),
    (bad.returns_cycle, {}, ErrorKind.ERROR, "Unserialisable result", None),
]


@pytest.mark.rule("EXE-02", "RET-05")
@pytest.mark.parametrize(("function", "params", "kind", "text", "exit_code"), ENDS)
async def test_a_bad_end_fails_its_run_and_says_how(
    function: Callable[..., Any], params: dict[str, Any], kind: ErrorKind, text: str, exit_code: int | None
) -> None:
    outcome = await run(function, **params)
    assert (outcome.status, outcome.error_kind) == (RunStatus.FAILED, kind), outcome
    assert text in (outcome.error or "")
    if exit_code is not None:
        assert outcome.exit_code == exit_code


@pytest.mark.rule("RET-05")
async def test_skip_in_a_process_ends_the_run_skipped() -> None:
    outcome = await run(bad.raises_skip)
    assert (outcome.status, outcome.error) == (RunStatus.SKIPPED, "nothing new")


@pytest.mark.rule("EXE-02")
async def test_a_raised_error_leaves_its_traceback_in_the_log() -> None:
    stage = on_stage(bad.raises_value_error, "process")
    await stage.run()
    assert "in raises_value_error" in stage.script.text("stderr")
    assert "process_child.py" not in stage.script.text("stderr")


@pytest.mark.rule("EXE-02")
async def test_a_module_that_cannot_be_imported_fails_the_run_with_the_reason(tmp_path: Path) -> None:
    function = JobType.from_function(bad.raises_skip, isolation="process")
    assert function.target is not None
    object.__setattr__(function.target, "module", "no_such_module_at_all")
    outcome = await Stage(function).run()
    assert outcome.error_kind is ErrorKind.ERROR
    assert "no_such_module_at_all" in (outcome.error or "")


@pytest.mark.rule("EXE-01")
async def test_what_no_process_could_find_again_is_refused_at_registration() -> None:
    def local() -> None: ...

    for function in (local, lambda: None, "text".upper):
        with pytest.raises(Invalid) as refusal:
            JobType.from_function(function, "x", isolation="process")
        assert refusal.value.field == "isolation"


# -- being stopped -----------------------------------------------------------------------------------------


@pytest.mark.rule("CAN-02")
@pytest.mark.parametrize("function", [bad.sleeps, bad.awaits, bad.eats_exceptions, bad.floods_reports])
async def test_a_cancel_reaches_a_process_within_a_second(function: Callable[..., Any]) -> None:
    stage = on_stage(function, "process")
    stage.stop_when_it_says("waiting", "cancelled", grace_s=None)
    outcome = await stage.run(within_s=20)
    assert time.monotonic() - stage.stopped_at < 5, "told within a second; the rest is for a busy machine"
    assert (outcome.status, outcome.error_kind) == (RunStatus.FAILED, ErrorKind.CANCELLED), outcome
    assert outcome.exit_code is None, "it ended by itself"
    if function in (bad.sleeps, bad.awaits):
        assert "cleaned up" in stage.script.text("log")


@pytest.mark.rule("CAN-02")
@pytest.mark.parametrize("reason", ["cancelled", "interrupted"])
async def test_a_real_success_within_the_grace_counts(reason: str) -> None:
    for function, result in ((bad.waits_for_stop, None), (bad.swallows_cancelled, "made it")):
        stage = on_stage(function, "process")
        stage.stop_when_it_says("waiting", reason)
        outcome = await stage.run()
        if result is not None:
            assert (outcome.status, outcome.result) == (RunStatus.COMPLETED, result)
        else:
            # Cancelled is raised in it wherever it is, so it does not get to return.
            assert outcome.error_kind == ErrorKind(reason)


@pytest.mark.rule("TIM-01")
async def test_a_result_after_the_deadline_is_a_timeout_all_the_same() -> None:
    stage = on_stage(bad.swallows_cancelled, "process")
    stage.stop_when_it_says("waiting", "timeout")
    outcome = await stage.run()
    assert (outcome.status, outcome.error_kind) == (RunStatus.FAILED, ErrorKind.TIMEOUT)
    assert outcome.result is None


@pytest.mark.rule("CAN-03", "TIM-01")
@pytest.mark.parametrize("reason", ["cancelled", "timeout", "interrupted", "lost"])
async def test_a_process_that_ignores_the_stop_is_killed_after_the_grace(reason: str) -> None:
    stage = on_stage(bad.never_ends, "process")
    stage.stop_when_it_says("waiting", reason, grace_s=0.2)
    outcome = await stage.run(within_s=10)
    assert (outcome.status, outcome.error_kind) == (RunStatus.FAILED, ErrorKind(reason))
    assert outcome.exit_code == -signal.SIGKILL


@pytest.mark.rule("CAN-03")
async def test_without_a_grace_nothing_is_killed_until_someone_asks_for_it() -> None:
    stage = on_stage(bad.never_ends, "process")
    stage.stop_when_it_says("waiting", "cancelled", grace_s=None)
    running = asyncio.create_task(stage.run())
    await asyncio.wait({running}, timeout=1)
    assert not running.done()
    stage.stop.set("cancelled", grace_s=0)
    assert (await running).error_kind is ErrorKind.CANCELLED


@pytest.mark.rule("EXE-02")
async def test_tearing_down_the_worker_kills_the_process() -> None:
    stage = on_stage(bad.never_ends, "process")
    has_logged = asyncio.Event()
    stage.script.on_log = lambda text: has_logged.set()
    running = asyncio.create_task(stage.run())
    await has_logged.wait()
    running.cancel()
    outcome = await running
    assert outcome.error_kind is ErrorKind.INTERRUPTED


# -- what is left behind -----------------------------------------------------------------------------------


@pytest.mark.rule("EXE-02")
async def test_children_left_behind_are_killed_even_if_they_became_daemons_and_fail_the_run() -> None:
    stage = on_stage(bad.leaves_children, "process")
    outcome = await stage.run()
    assert (outcome.status, outcome.error_kind) == (RunStatus.FAILED, ErrorKind.ERROR)
    assert outcome.error is not None and outcome.error.startswith("The handler left 2 processes behind")
    assert stage.script.text("stderr") == "[2 processes left behind by the handler, killed]\n"
    assert not is_alive(outcome.result["plain"])
    assert not is_alive(outcome.result["daemon"])


@pytest.mark.rule("EXE-02")
async def test_children_that_end_soon_after_the_handler_are_not_left_behind() -> None:
    stage = on_stage(bad.leaves_a_child_that_goes, "process")
    assert (await stage.run()).status is RunStatus.COMPLETED
    assert stage.script.logged == []


@pytest.mark.rule("EXE-02")
async def test_a_fork_bomb_that_scatters_over_sessions_is_gone_when_the_run_is() -> None:
    stage = on_stage(bad.forks_a_bomb, "process")
    stage.stop_when_it_says("waiting", "timeout", grace_s=0.1)
    outcome = await stage.run(within_s=30)
    assert outcome.error_kind is ErrorKind.TIMEOUT
    assert marked(stage.run_id) == []


@pytest.mark.rule("EXE-02")
async def test_a_fork_of_the_handler_cannot_speak_for_the_run() -> None:
    stage = on_stage(bad.returns_twice, "process")
    assert (await stage.run()).result == "the handler"
    assert stage.script.logged == []


@pytest.mark.rule("EXE-02")
async def test_a_thread_left_behind_does_not_hold_the_run() -> None:
    stage = on_stage(bad.leaves_a_thread, "process")
    stage.handler = ProcessHandler(stage.job_type, exit_grace_s=0.2)
    outcome = await stage.run(within_s=10)
    assert (outcome.status, outcome.result) == (RunStatus.COMPLETED, "done")


@pytest.mark.rule("EXE-02")
async def test_a_gigabyte_of_output_is_cut_with_a_mark_and_costs_no_memory() -> None:
    stage = on_stage(bad.prints_for_ever, "process", max_log_bytes=100_000)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = await stage.run(megabytes=1024, within_s=60)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    assert outcome.result == 1024
    text = stage.script.text("stdout")
    assert 99_000 < len(text) < 101_000
    assert text.endswith(TRUNCATED)
    assert grown_kb < 20_000


@pytest.mark.rule("EXE-02")
async def test_the_next_job_is_clean_and_the_worker_keeps_its_descriptors() -> None:
    first = (await run(bad.inspects_the_process)).result
    descriptors = len(os.listdir("/proc/self/fd"))
    for function in (bad.dirties_the_process, bad.os_exit, bad.segfaults, bad.leaves_children):
        await run(function)
    assert (await run(bad.inspects_the_process)).result == first
    assert first["cwd"] == os.getcwd()
    assert first["dirt"] is None
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.rule("EXE-02")
async def test_a_worker_out_of_descriptors_fails_the_run_and_goes_on() -> None:
    stage = on_stage(bad.raises_skip, "process")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    with contextlib.ExitStack() as fillers:
        # The limit is one of numbers: those that are free below the highest one must not be left for the run.
        number = -1
        while number < highest:
            number = os.dup(0)
            fillers.callback(os.close, number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (number + 3, hard))
        try:
            outcome = await stage.run()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert outcome.error_kind is ErrorKind.ERROR
    assert "Too many open files" in (outcome.error or "")
    assert (await run(bad.raises_skip)).status is RunStatus.SKIPPED


ORPHAN = """
import asyncio, sys
from tests.engine import misbehaviours as bad
from tests.engine.handler_stage import on_stage

def pid(text):
    print(text, flush=True)

def sleeper(ctx):
    import os, time
    ctx.log(os.getpid())
    time.sleep(300)

async def main():
    stage = on_stage(sleeper, "process")
    stage.script.on_log = pid
    print(await stage.run(within_s=300))

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.rule("EXE-02")
async def test_the_process_dies_with_a_worker_that_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(ORPHAN)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    worker = await asyncio.create_subprocess_exec(
        sys.executable, str(script), stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    )
    assert worker.stdout is not None
    child = int(await worker.stdout.readline())
    assert is_alive(child)
    worker.kill()
    await worker.wait()
    await until(lambda: not is_alive(child))
