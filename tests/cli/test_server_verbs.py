"""The same verbs against a live server: same words, same JSON, same exit codes as on its store."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from holdbeat import Client
from tests.cli.command import Command
from tests.cli.conftest import Server


def test_verbs_give_the_same_answer_from_the_store_and_from_the_server(server: Server) -> None:
    holdbeat = server.command
    remote = {"HOLDBEAT_SERVER": server.url}
    done = holdbeat("submit", "story", "prompt=x", "--wait", "--json", env=remote).json
    assert done["status"] == "COMPLETED" and done["run"]["result"] == {"text": "x x x"}
    failed = holdbeat("submit", "broken", "why=two\nlines", "--wait", "--json", env=remote, code=1).json
    assert failed["run"]["error_kind"] == "error"
    holdbeat("schedules", "add", "same", "story", "--cron", "0 3 * * *", env=remote)
    for words in (
        ["jobs"],
        ["jobs", "--json"],
        ["jobs", "--status", "FAILED", "--type", "broken", "--json"],
        ["show", done["id"], "--json"],
        ["show", done["id"], "--events", "--json"],
        ["show", failed["id"]],
        ["show", done["id"], "--artifact", "result"],
        ["logs", done["id"]],
        ["logs", done["id"], "-f", "--json"],
        ["queue", "list", "--json"],
        ["schedules", "list"],
        ["schedules", "show", "same", "--json"],
        ["schedules", "preview", "same", "--json"],
        ["schedules", "occurrences", "same", "--json"],
        ["types", "--json"],
    ):
        here, there = holdbeat(*words), holdbeat(*words, env=remote)
        assert (here.out, here.err) == (there.out, there.err), words
    for words, code in (
        (["show", "01977e3c-5f2a-7c31-b3a8-0d5c6f0a9e11"], 4),
        (["submit", "stroy"], 2),
        (["retry", done["id"]], 1),
        (["schedules", "add", "same", "story", "--cron", "0 3 * * *"], 1),
        (["schedules", "add", "bad", "story", "--cron", "61 * * * *"], 2),
        (["jobs", "--cursor", "nonsense"], 2),
    ):
        here, there = holdbeat(*words, code=code), holdbeat(*words, env=remote, code=code)
        assert here.err == there.err, words
    assert r"two\nlines" in holdbeat("show", failed["id"]).out


def test_a_direct_request_is_answered_from_the_store_and_from_the_server(server: Server) -> None:
    holdbeat = server.command
    for env in ({}, {"HOLDBEAT_SERVER": server.url}):
        answer = holdbeat("direct", "story", "prompt=now", "words=1", "--json", env=env).json
        assert answer["outcome"] == "COMPLETED" and answer["result"] == {"text": "now"}
        assert "no reason" in holdbeat("direct", "broken", env=env, code=1).err
        assert "Did you mean story" in holdbeat("direct", "stroy", env=env, code=2).err


@pytest.mark.parametrize("at", ["store", "server"])
def test_what_happens_can_be_watched_and_ctrl_c_ends_it_without_a_traceback(server: Server, at: str) -> None:
    holdbeat = server.command
    env = {"HOLDBEAT_SERVER": server.url} if at == "server" else {}
    watching = holdbeat.start("watch", "--name", "job.queued", env=env)
    assert watching.stdout is not None
    # Nothing says when the watcher is ready: jobs are submitted until it sees one.
    until = time.monotonic() + 60
    with Client(server.url) as client:
        while not select.select([watching.stdout], [], [], 0.2)[0]:
            assert time.monotonic() < until
            client.submit("story")
    seen = watching.stdout.readline()
    assert "job.queued" in seen and "job=" in seen
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=30)
    assert watching.returncode == 130 and "Traceback" not in err


def test_lists_can_be_watched(server: Server) -> None:
    watching = server.command.start("stats", "--watch", "0.1", "--json")
    assert watching.stdout is not None
    first, second = watching.stdout.readline(), watching.stdout.readline()
    assert '"jobs"' in first and '"jobs"' in second
    watching.send_signal(signal.SIGINT)
    assert watching.wait(30) == 130
    watching.communicate()


def test_top_prints_once_in_a_pipe_and_ends_with_q_on_a_terminal(server: Server) -> None:
    holdbeat = server.command
    said = holdbeat("top", "--server", server.url).out
    assert all(title in said for title in ("SLOTS", "RUNNING", "QUEUE", "WORKERS", "NEXT RUNS"))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdbeat", "top", "--every", "0.1"],
        cwd=holdbeat.folder,
        env={**holdbeat.environment, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    drawn = b""
    while b"NEXT RUNS" not in drawn:
        drawn += os.read(ours, 65536)
    os.write(ours, b"q")
    while process.poll() is None:
        try:
            os.read(ours, 65536)
        except OSError:
            break
    _, err = process.communicate(timeout=30)
    os.close(ours)
    assert process.returncode == 0 and err == b""


def test_colours_are_for_terminals_alone(server: Server) -> None:
    holdbeat = server.command
    assert "\x1b" not in holdbeat("jobs").out

    def on_a_terminal(**env: str) -> bytes:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "holdbeat", "jobs", "--status", "COMPLETED"],
            cwd=holdbeat.folder,
            env={**holdbeat.environment, "TERM": "xterm", "COLUMNS": "120", **env},
            stdin=theirs,
            stdout=theirs,
        )
        os.close(theirs)
        drawn = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            drawn += part
        assert process.wait(30) == 0
        os.close(ours)
        return drawn

    holdbeat("submit", "story", "--wait")
    assert b"\x1b[32mCOMPLETED" in on_a_terminal()
    assert b"\x1b[32m" not in on_a_terminal(NO_COLOR="1")


@pytest.mark.rule("SEC-02")
def test_a_server_asks_for_a_key_once_there_is_one(tmp_path: Path) -> None:
    holdbeat = Command(tmp_path)
    server = Server(holdbeat)
    try:
        holdbeat("jobs", "--server", server.url)
        key = holdbeat("keys", "create", "--name", "reader", "--scope", "read", "--json").json
        wait_until(lambda: status_of(server) == 401)
        assert "key" in holdbeat("jobs", "--server", server.url, code=1).err
        holdbeat("jobs", "--server", server.url, "--key", key["key"])
        assert "scope" in holdbeat("submit", "story", "--server", server.url, "--key", key["key"], code=1).err
    finally:
        server.stop()


def status_of(server: Server) -> int:
    """What the server answers to somebody without a key."""
    return httpx2.get(f"{server.url}/api/job-types", trust_env=False).status_code


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)
