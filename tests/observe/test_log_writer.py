"""The log's own thread: callers do not wait for the stream, order holds, nothing is lost at the end of a process."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from holdbeat.app import App
from holdbeat.observe.log_formats import JsonFormatter
from holdbeat.observe.log_writer import MOST_WAITING, QueuedHandler
from holdbeat.observe.logs import configure

pytestmark = pytest.mark.rule("OPS-04")


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger of our own names, with nothing on it; what others see is left as it was."""
    ours = logging.getLogger("holdbeat.test_log_writer")
    ours.setLevel(logging.DEBUG)
    ours.propagate = False
    yield ours
    ours.handlers.clear()


class SlowStream(io.StringIO):
    """A stream whose reader does not read until it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.entered = threading.Event()
        self.writes = 0

    def write(self, text: str) -> int:
        self.entered.set()
        self.open.wait(30)
        self.writes += 1
        return super().write(text)


def test_lines_are_written_in_the_order_they_were_logged(logger: logging.Logger) -> None:
    stream = io.StringIO()
    handler = QueuedHandler(stream)
    logger.addHandler(handler)
    for number in range(500):
        logger.info("line %d", number)
    handler.flush()
    assert stream.getvalue().splitlines() == [f"line {number}" for number in range(500)]


def test_a_stream_that_stands_still_holds_up_no_caller_and_dropped_lines_are_counted(logger: logging.Logger) -> None:
    stream = SlowStream()
    handler = QueuedHandler(stream)
    logger.addHandler(handler)
    logger.info("first")
    assert stream.entered.wait(10)
    for number in range(MOST_WAITING + 7):
        logger.info("line %d", number)
    stream.open.set()
    handler.flush()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "first" and lines[1] == "line 0" and lines[MOST_WAITING] == f"line {MOST_WAITING - 1}"
    assert lines[-1].startswith("7 log lines were dropped")
    assert stream.writes < 20  # many lines in one write


def test_an_error_is_written_before_the_call_returns(logger: logging.Logger) -> None:
    stream = io.StringIO()
    logger.addHandler(QueuedHandler(stream))
    logger.info("before")
    logger.error("broken")
    assert stream.getvalue() == "before\nbroken\n"


def test_a_stream_that_fails_does_not_reach_the_caller(logger: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    stream = io.StringIO()
    handler = QueuedHandler(stream)
    logger.addHandler(handler)
    stream.close()
    logger.error("to nobody")
    handler.flush()


def test_nothing_is_lost_when_the_interpreter_ends() -> None:
    code = (
        "import logging, sys; from holdbeat.observe.logs import configure\n"
        "configure('info', 'text', sys.stdout)\n"
        "for number in range(3000): logging.getLogger('holdbeat.x').info('line %d', number)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert [line.split()[-1] for line in done.stdout.splitlines()] == [str(number) for number in range(3000)]


def test_a_process_that_skips_the_interpreters_end_flushes_by_hand() -> None:
    code = (
        "import logging, os, sys; from holdbeat.observe.logs import configure\n"
        "from holdbeat.observe.log_writer import flush_logs\n"
        "configure('info', 'text', sys.stdout)\n"
        "for number in range(3000): logging.getLogger('holdbeat.x').info('line %d', number)\n"
        "flush_logs(); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert len(done.stdout.splitlines()) == 3000


def test_a_forked_child_does_not_repeat_its_parents_lines_and_writes_its_own(
    logger: logging.Logger, tmp_path: os.PathLike[str]
) -> None:
    path = os.path.join(tmp_path, "log")
    code = (
        "import logging, os, sys; from holdbeat.observe.logs import configure\n"
        "handler = configure('info', 'text', open(sys.argv[1], 'a'))\n"
        "log = logging.getLogger('holdbeat.x')\n"
        "handler._writing.acquire(); log.info('parent'); child = os.fork()\n"
        "if child == 0:\n    log.info('child'); logging.shutdown(); os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "handler._writing.release()\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, path], timeout=60, check=True)
    with open(path, encoding="utf-8") as file:
        assert sorted(line.split()[-1] for line in file) == ["child", "parent"]


@pytest.mark.asyncio
async def test_a_run_leaves_one_line_at_info_with_type_status_and_duration(tmp_path: os.PathLike[str]) -> None:
    ours = logging.getLogger("holdbeat")
    before = (list(ours.handlers), ours.level, ours.propagate)
    stream = io.StringIO()
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.job(retries=0)
    async def add(a: int) -> int:
        return 10 // a

    try:
        handler = configure("info", "json", stream)
        async with app.running():
            good, bad = await app.enqueue(add, a=1), await app.enqueue(add, a=0)
            await good.wait(30)
            await bad.wait(30)
        handler.flush()
    finally:
        app.close()
        ours.handlers, ours.propagate = before[0], before[2]
        ours.setLevel(before[1])
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    about = [line for line in lines if line.get("job") in (good.id, bad.id) and line["level"] == "info"]
    assert [(line["event"], line["job"]) for line in about] == [("run.ended", good.id), ("run.ended", bad.id)]
    assert [line["data"]["status"] for line in about] == ["COMPLETED", "FAILED"]
    assert about[0]["data"]["type"] == "add" and about[0]["data"]["ran_s"] >= 0
    assert about[1]["data"]["error_kind"] == "error" and about[0]["run"] and about[0]["worker"]


def test_the_formatter_runs_in_the_logs_own_thread(logger: logging.Logger) -> None:
    threads: list[str] = []

    class Noting(JsonFormatter):
        def format(self, record: logging.LogRecord) -> str:
            threads.append(threading.current_thread().name)
            return super().format(record)

    written = threading.Event()

    class Told(io.StringIO):
        def flush(self) -> None:
            written.set()

    handler = QueuedHandler(Told())
    handler.setFormatter(Noting())
    logger.addHandler(handler)
    logger.info("x")
    assert written.wait(10)
    assert threads == ["holdbeat-log"]
