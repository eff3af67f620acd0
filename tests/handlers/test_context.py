"""The Context and the StopSignal by themselves."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid
from holdbeat.domain.run import ErrorKind, Outcome, RunStatus
from holdbeat.handlers.context import TRUNCATED, Cancelled, Context
from holdbeat.handlers.job_message import job_message, job_of
from holdbeat.handlers.stop import StopReason, StopSignal
from tests.engine.handler_stage import Script, a_job


def a_context(**changes: Any) -> tuple[Context, Script, StopSignal]:
    script, stop = Script(), StopSignal()
    defaults: dict[str, Any] = {"run_id": "r", "type": "story", "fence": 1, "reports": script, "stop": stop}
    return Context(**{**defaults, **changes}), script, stop


@pytest.mark.rule("EXE-03")
@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", ".hidden", "../x", "a/b", "/etc/passwd", "a\\b", "..%2f", "%2e%2e", "~"),
        *("a\x00", "a\n", "a b", "ä", "x" * 121, "result", None, 7),
    ],
)
def test_an_artifact_cannot_leave_its_place(name: Any) -> None:
    ctx, script, _ = a_context()
    with pytest.raises(Invalid):
        ctx.artifact(name, b"x")
    assert script.artifacts == {}


@pytest.mark.rule("EXE-03")
def test_an_artifact_is_bytes_text_or_a_file(tmp_path: Path) -> None:
    ctx, script, _ = a_context()
    (tmp_path / "f").write_bytes(b"from file")
    ctx.artifact("a-1_B.tar.gz", b"bytes")
    ctx.artifact("text", "é")
    ctx.artifact("file", tmp_path / "f")
    ctx.artifact("view", memoryview(b"view"))  # type: ignore[arg-type]
    assert script.artifacts == {
        "a-1_B.tar.gz": b"bytes",
        "text": "é".encode(),
        "file": b"from file",
        "view": b"view",
    }
    with pytest.raises(Invalid):
        ctx.artifact("number", 7)  # type: ignore[arg-type]


@pytest.mark.rule("EXE-03")
def test_progress_stays_between_nothing_and_all() -> None:
    ctx, script, _ = a_context()
    for fraction in (-1, 0.25, 7, float("inf"), float("nan"), None):
        ctx.progress(fraction, "a\x00" + "x" * 1000 if fraction == 0.25 else None)
    assert [fraction for fraction, _ in script.progressed] == [0, 0.25, 1, 1, None, None]
    message = script.progressed[1][1]
    assert message is not None and len(message) == 500 and "\x00" not in message


@pytest.mark.rule("EXE-02", "EXE-03")
def test_the_log_of_a_run_is_capped_over_all_its_streams_and_marked_once() -> None:
    ctx, script, _ = a_context(max_log_bytes=100)
    ctx.write_log("stdout", "é" * 40)
    for _ in range(10):
        ctx.log("x" * 15)
    ctx.write_log("stderr", "more")
    whole = "".join(text for _, text in script.logged)
    assert whole == "é" * 40 + "x" * 15 + "\n" + "x" * 4 + "\n" + TRUNCATED
    assert ctx.is_log_full


@pytest.mark.rule("EXE-03")
def test_log_writes_a_line_as_print_does_and_stores_what_can_be_stored() -> None:
    ctx, script, _ = a_context()
    ctx.log("a", 1, None, "\x00\ud800")
    assert script.logged == [("log", "a 1 None ��\n")]


@pytest.mark.rule("EXE-03", "LEASE-06")
def test_the_time_left_does_not_follow_jumps_of_the_wall_clock() -> None:
    clock = ManualClock()
    ctx, _, _ = a_context(clock=clock, deadline=clock.now() + timedelta(seconds=60))
    clock.advance(10)
    clock.jump(-86_400)
    assert ctx.remaining_s == pytest.approx(50)
    clock.advance(100)
    assert ctx.remaining_s == 0
    assert a_context()[0].remaining_s is None


@pytest.mark.rule("EXE-03", "CAN-02")
def test_a_checkpoint_raises_once_the_handler_should_end() -> None:
    ctx, _, stop = a_context(job=a_job(attempt=3))
    ctx.checkpoint()
    assert not ctx.cancelled and ctx.attempt == 3
    stop.set("interrupted")
    assert ctx.cancelled
    with pytest.raises(Cancelled, match="interrupted"):
        ctx.checkpoint()


def test_a_direct_request_has_no_job_and_is_its_first_attempt() -> None:
    ctx, _, _ = a_context()
    assert ctx.job is None and ctx.attempt == 0


def test_a_job_is_the_same_job_in_the_process_that_runs_it() -> None:
    from holdbeat.domain.params import dumps, loads_strict

    job = a_job(params={"at": {"at": "x"}}, cancel_grace_s=None, started_at=ManualClock().now(), trace="t")
    assert job_of(loads_strict(dumps(job_message(job)))) == job


# -- StopSignal --------------------------------------------------------------------------------------------


@pytest.mark.rule("CAN-02")
def test_the_first_reason_stays_unless_the_lease_is_lost() -> None:
    stop = StopSignal()
    assert not stop.is_set and stop.reason is None
    assert stop.set("cancelled", grace_s=5)
    assert not stop.set("timeout", grace_s=5)
    assert stop.reason is StopReason.CANCELLED
    assert stop.set("lost", grace_s=5)
    assert not stop.set("cancelled", grace_s=5)
    assert stop.reason is StopReason.LOST
    with pytest.raises(ValueError):
        stop.set("boredom")


@pytest.mark.rule("CAN-03")
def test_the_grace_can_be_shortened_and_never_lengthened() -> None:
    stop = StopSignal()
    stop.set("cancelled", grace_s=None)
    assert stop.set("interrupted", grace_s=10)
    assert not stop.set("interrupted", grace_s=60)
    assert not stop.set("interrupted", grace_s=None)
    assert stop.set("interrupted", grace_s=0)
    assert (stop.reason, stop.grace_s) == (StopReason.CANCELLED, 0)


def test_subscribers_are_called_for_every_change_and_for_one_before_they_came() -> None:
    stop, heard = StopSignal(), []
    unsubscribe = stop.subscribe(lambda: heard.append("early"))
    stop.set("cancelled", grace_s=10)
    stop.subscribe(lambda: heard.append("late"))
    assert heard == ["early", "late"]
    unsubscribe()
    unsubscribe()
    stop.set("cancelled", grace_s=1)
    assert heard == ["early", "late", "late"]


def test_threads_wait_for_the_signal() -> None:
    stop = StopSignal()
    assert not stop.wait(0)
    threading.Timer(0.02, stop.set, ("timeout",)).start()
    assert stop.wait(5)


def test_of_many_threads_that_set_it_exactly_one_is_first() -> None:
    for _ in range(50):
        stop = StopSignal()
        start, firsts = threading.Barrier(4), []

        def set_it(reason: str) -> None:
            start.wait()  # noqa: B023
            if stop.set(reason, grace_s=1):  # noqa: B023
                firsts.append(reason)  # noqa: B023

        threads = [
            threading.Thread(target=set_it, args=(reason,))
            for reason in ("cancelled", "timeout", "interrupted", "timeout")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert firsts == [stop.reason]


SUCCESS, SKIPPED = Outcome.completed(1), Outcome.skipped("nothing new")
FAILURE = Outcome.failed(ErrorKind.ERROR, "ValueError: bad", exit_code=3)


@pytest.mark.rule("TIM-01", "CAN-03")
@pytest.mark.parametrize("outcome", [SUCCESS, SKIPPED, FAILURE], ids=["success", "skip", "failure"])
@pytest.mark.parametrize("reason", [None, *StopReason])
def test_what_an_ending_counts_as_after_each_reason(reason: StopReason | None, outcome: Outcome) -> None:
    stop = StopSignal()
    if reason is not None:
        stop.set(reason)
    verdict = stop.verdict(outcome)
    if reason is None or (reason in ("cancelled", "interrupted", "preempted") and outcome is not FAILURE):
        assert verdict is outcome
    else:
        assert (verdict.status, verdict.error_kind) == (RunStatus.FAILED, reason.error_kind)
        assert verdict.result is None
        assert verdict.exit_code == outcome.exit_code
        assert ("ValueError: bad" in (verdict.error or "")) == (outcome is FAILURE)


@pytest.mark.rule("EXE-02")
def test_a_report_that_is_lost_does_not_fail_the_work(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Script):
        def progress(self, fraction: float | None, message: str | None) -> None:
            raise OSError("the store is away")

        def log(self, stream: str, text: str) -> None:
            raise OSError("the store is away")

        def artifact(self, name: str, data: bytes | Path) -> None:
            raise OSError("the store is away")

    ctx, _, _ = a_context(reports=Broken())
    ctx.progress(0.5)
    ctx.log("hello")
    assert caplog.text.count("A report of a running handler was lost.") == 2
    with pytest.raises(OSError):
        ctx.artifact("page", b"x")


def test_one_who_cannot_be_told_does_not_keep_the_others_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise OSError("broken")

    stop, heard = StopSignal(), []
    stop.subscribe(fails)
    stop.subscribe(lambda: heard.append("told"))
    assert stop.set("cancelled")
    assert heard == ["told"]
    assert "could not be told to end" in caplog.text


def test_an_error_says_what_stopped_the_run_and_how_it_ended_otherwise() -> None:
    stop = StopSignal()
    stop.set("cancelled")
    obeyed = Outcome.failed(ErrorKind.ERROR, "Cancelled: told to end: cancelled")
    assert stop.verdict(obeyed).error == "Cancelled while running."
    assert stop.verdict(FAILURE).error == "Cancelled while running; it ended with: ValueError: bad"
