"""What handlers print and log is kept with their runs and is in the log of the process (LOG-01)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from holdbeat.domain.job import JobStatus
from holdbeat.handlers.context import MAX_LOG_BYTES, TRUNCATED
from tests.crash import talking_jobs
from tests.crash.processes import Field, Process
from tests.engine.acting import rows
from tests.waiting import eventually

PROGRAM = "tests.crash.talking_jobs:app"


def run_all(ground: Field, *types: str, **settings: Any) -> tuple[Process, dict[str, Any]]:
    """Runs one job of each type in a real worker, to its end, and ends the worker."""
    ground.app._types = talking_jobs.app._types
    worker = ground.start(program_app=PROGRAM, **settings)
    handles = {type_: ground.app.enqueue_sync(type_) for type_ in types}
    ended = (JobStatus.COMPLETED, JobStatus.FAILED)
    jobs = {
        type_: eventually(lambda: (job := ground.job(handle.id)).status in ended and job, details=worker.output)  # noqa: B023
        for type_, handle in handles.items()
    }
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == 0
    return worker, jobs


def log_of(ground: Field, job: Any) -> str:
    texts = rows(ground.store, "SELECT text FROM run_logs WHERE run_id = :id ORDER BY sequence", id=job.run.id)
    return "".join(text for (text,) in texts)


@pytest.mark.rule("LOG-01")
def test_prints_and_log_records_of_every_kind_of_handler_are_in_its_run_and_as_json_in_the_log(ground: Field) -> None:
    kinds = ("async", "thread", "process")
    worker, jobs = run_all(ground, *(f"talk_{kind}" for kind in kinds), log_format="json")
    lines = [json.loads(line) for line in worker.output().splitlines()]  # nothing but JSON
    for kind in kinds:
        job = jobs[f"talk_{kind}"]
        text = log_of(ground, job)
        for part in (f"printed in {kind}\n", "in pieces until here\n", f"INFO shop.orders: an order of {kind}\n"):
            assert part in text
        assert "not this" not in text
        words = [line["message"] for line in lines if line.get("run") == job.run.id and line.get("job") == job.id]
        for part in (f"printed in {kind}", "in pieces until here"):
            assert part in words
        assert any(f"an order of {kind}" in word for word in words), words
    assert "WARNING shop.orders: from a thread of async\n" in log_of(ground, jobs["talk_async"])


def records(worker: Process) -> list[dict[str, Any]]:
    """The lines of both streams: nothing but JSON, and no record within another."""
    lines = [json.loads(line) for line in worker.output().rpartition("\n")[0].splitlines()]
    assert not [line for line in lines if line["message"].startswith('{"at"')]
    return lines


def output_of(worker: Process, source: str) -> list[str]:
    lines = records(worker)
    return [line["message"] for line in lines if (line["logger"], line.get("source")) == ("holdbeat.output", source)]


@pytest.mark.rule("LOG-01")
def test_what_subprocesses_and_native_code_write_to_the_descriptors_is_json_in_the_log(ground: Field) -> None:
    worker, jobs = run_all(ground, "raw_async", "raw_thread", "raw_native", log_format="json")
    assert {job.status for job in jobs.values()} == {JobStatus.COMPLETED}
    assert sorted(output_of(worker, "stdout")) == ["from a fork", "raw", "raw"]
    # The end of the worker waits a second for its reader, which then writes on by itself.
    eventually(lambda: output_of(worker, "stderr").count("native") == 30_000, details=worker.output)
    errors = output_of(worker, "stderr")
    assert errors.count("err") == 2
    for text in ("from async, not \ufffd UTF-8", "from thread, not \ufffd UTF-8", "half a line"):
        assert text in errors


@pytest.mark.rule("LOG-01")
def test_what_a_process_writes_while_it_crashes_is_json_in_its_log(sqlite_ground: Field) -> None:
    sqlite_ground.app._types = talking_jobs.app._types
    worker = sqlite_ground.start(program_app=PROGRAM, log_format="json")
    sqlite_ground.app.enqueue_sync("raw_crash")
    assert worker.exit_code() == -signal.SIGSEGV
    eventually(lambda: any("in raw_crash" in line for line in output_of(worker, "stderr")), details=worker.output)


@pytest.mark.rule("LOG-01")
def test_a_child_that_holds_the_streams_does_not_delay_the_end_and_is_heard_after_it(sqlite_ground: Field) -> None:
    sqlite_ground.app._types = talking_jobs.app._types
    fifo = sqlite_ground.folder / "fifo"
    os.mkfifo(fifo)
    worker = sqlite_ground.start(program_app=PROGRAM, log_format="json")
    handle = sqlite_ground.app.enqueue_sync("leave_child", fifo=str(fifo))
    eventually(lambda: sqlite_ground.job(handle.id).status is JobStatus.COMPLETED, details=worker.output)
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == 0
    fifo.write_text("afterwards\n")
    eventually(lambda: output_of(worker, "stdout") == ["afterwards"], details=worker.output)


def events(worker: Process, name: str) -> list[dict[str, Any]]:
    return [line for line in records(worker) if line.get("event") == name]


def reader_of(worker: Process) -> int:
    """The process that reads what the worker's descriptors are written."""
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    (reader,) = [int(pid) for pid in children if b"output_child" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return reader


@pytest.mark.rule("LOG-01")
def test_a_reader_of_output_that_stands_still_does_not_delay_the_end(sqlite_ground: Field) -> None:
    sqlite_ground.app._types = talking_jobs.app._types
    worker = sqlite_ground.start(program_app=PROGRAM, log_format="json")
    reader = reader_of(worker)
    os.kill(reader, signal.SIGSTOP)
    handle = sqlite_ground.app.enqueue_sync("raw_async")
    eventually(lambda: sqlite_ground.job(handle.id).status is JobStatus.COMPLETED, details=worker.output)
    worker.send(signal.SIGTERM)
    assert worker.exit_code(20) == 0
    os.kill(reader, signal.SIGCONT)
    eventually(lambda: output_of(worker, "stdout") == ["raw"], details=worker.output)


@pytest.mark.rule("LOG-01")
def test_a_reader_of_output_that_was_killed_is_started_again(sqlite_ground: Field) -> None:
    sqlite_ground.app._types = talking_jobs.app._types
    worker = sqlite_ground.start(program_app=PROGRAM, log_format="json")
    os.kill(reader_of(worker), signal.SIGKILL)
    sqlite_ground.app.enqueue_sync("raw_thread")
    eventually(lambda: "raw" in output_of(worker, "stdout"), details=worker.output)
    assert any("it is started again" in line["message"] for line in records(worker))


@pytest.mark.rule("LOG-01")
def test_the_log_of_several_worker_processes_is_json_and_not_json_in_json(sqlite_ground: Field) -> None:
    sqlite_ground.app._types = talking_jobs.app._types
    worker = sqlite_ground.start("worker", "--processes", "2", program_app=PROGRAM, ready=False, log_format="json")
    sqlite_ground.app.enqueue_sync("raw_async")
    eventually(lambda: output_of(worker, "stdout") == ["raw"], details=worker.output)
    eventually(lambda: len(events(worker, "settings.in_force")) == 2, details=worker.output)
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == 0
    assert len(events(worker, "worker.stopped")) == 2


@pytest.mark.rule("LOG-01")
@pytest.mark.parametrize("level", ["info", "debug"])
def test_the_line_of_a_failed_run_has_type_title_and_error_and_at_debug_the_traceback(
    sqlite_ground: Field, level: str
) -> None:
    worker, jobs = run_all(sqlite_ground, "fail", "fail_in_process", log_format="json", log_level=level)
    lines = [json.loads(line) for line in worker.output().splitlines()]
    for type_, job in jobs.items():
        (line,) = [one for one in lines if one.get("run") == job.run.id and one["logger"] == "holdbeat.run" and
                   one.get("type") == type_]  # fmt: skip
        assert line["title"] == job.title
        what = type_ if job.title == type_ else f"{type_} ({job.title})"
        assert line["message"] == f"a run of {what} failed: ValueError: the shop is closed"
        assert (line["level"], line["error_kind"], line["job"]) == ("warning", "error", job.id)
        assert ("Traceback" in line.get("exception", "")) == (level == "debug")
        assert 'raise ValueError("the shop is closed")' in log_of(sqlite_ground, job)


@pytest.mark.rule("LOG-01", "EXE-02")
def test_prints_without_end_are_cut_and_marked_in_both_logs(sqlite_ground: Field) -> None:
    worker, jobs = run_all(sqlite_ground, "flood")
    text = log_of(sqlite_ground, jobs["flood"])
    assert jobs["flood"].status is JobStatus.COMPLETED
    assert text.endswith(TRUNCATED)
    assert len(text) <= MAX_LOG_BYTES + len(TRUNCATED) + 1
    assert "39999 x" not in worker.output()


@pytest.mark.rule("FRM-04", "LOG-01")
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_startup_that_fails_ends_the_worker_with_a_sentence(sqlite_ground: Field, log_format: str) -> None:
    worker = sqlite_ground.start(program_app="tests.crash.broken_startup:app", ready=False, log_format=log_format)
    assert worker.exit_code() == 1
    sentence = "The startup function load failed, so this worker does not start: OSError: no such model"
    assert sentence in worker.output()
    assert "looking for the model" in worker.output()
    assert "Traceback" not in worker.output()
    if log_format == "json":
        lines = [json.loads(line) for line in worker.output().splitlines()]
        assert any("printed while it is imported" in line["message"] for line in lines)
    assert rows(sqlite_ground.store, "SELECT count(*) FROM workers WHERE stopped_at IS NULL") == [(0,)]
