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
from typing import cast

import httpx2
import pytest

from holdbeat import Client
from holdbeat.cli.backend import Backend
from holdbeat.cli.local import LocalBackend
from holdbeat.cli.main import exit_code
from holdbeat.domain.clock import SystemClock
from holdbeat.domain.errors import HoldbeatError
from holdbeat.settings import Settings
from holdbeat.store.schedules.schedules import create_schedule
from holdbeat.wiring import Composition
from tests.cli.command import Command, drawn_on
from tests.cli.conftest import CONCURRENCY, Server
from tests.conformance.acts import open_at
from tests.waiting import eventually


def test_verbs_give_the_same_answer_from_the_store_and_from_the_server(server: Server) -> None:
    holdbeat = server.command
    remote = {"HOLDBEAT_SERVER": server.url}
    done = holdbeat("submit", "story", "prompt=x", "--wait", "--json", env=remote).json
    assert done["status"] == "COMPLETED" and done["run"]["result"] == {"text": "x x x"}
    failed = holdbeat("submit", "broken", "why=two\nlines", "--wait", "--json", env=remote, code=1).json
    assert failed["run"]["error_kind"] == "error"
    holdbeat("schedules", "create", "same", "story", "--cron", "0 3 * * *", env=remote)
    for words in (["jobs"], ["show", failed["id"]], ["logs", done["id"], "-f", "--json"], ["schedules", "list"]):
        here, there = holdbeat(*words), holdbeat(*words, env=remote)
        assert (here.out, here.err) == (there.out, there.err), words
    for words, code in (
        (["show", "01977e3c-5f2a-7c31-b3a8-0d5c6f0a9e11"], 4),
        (["retry", done["id"]], 1),
        (["schedules", "create", "bad", "story", "--cron", "61 * * * *"], 2),
    ):
        here, there = holdbeat(*words, code=code), holdbeat(*words, env=remote, code=code)
        assert here.err == there.err, words
    assert r"two\nlines" in holdbeat("show", failed["id"]).out


@pytest.mark.rule("DEC-006")
def test_store_and_server_answer_every_question_with_the_same_json(server: Server) -> None:
    settings = Settings.load({"store": server.command.store, "concurrency": CONCURRENCY}, environ={})
    here: Backend = cast("Backend", LocalBackend(Composition().open_store(settings), settings))
    there = Client(server.url)
    job = there.wait_job(there.submit("story", labels={"team": "x"})["id"])
    later = there.submit("story", not_before="2999-01-01T00:00:00Z")
    group = there.create_group({"mode": "sequential", "jobs": [{"type": "story"}, {"type": "story"}]})
    for member in group["jobs"]:
        there.wait_job(member["id"])
    there.create_template({"name": "alike", "type": "story"})
    there.schedules.create({"name": "alike", "type": "story", "cron": "0 3 * * *"})
    there.endpoints.create({"name": "like", "url": "http://127.0.0.1:1/", "interval_s": 3600})
    there.wait_job(there.schedules.trigger("alike")["id"])
    there.create_webhook("https://example.org/")
    assert job["run"] is not None
    run_id = job["run"]["id"]
    questions: list[Callable[[Backend], object]] = [
        lambda item: item.list_jobs(status=["COMPLETED"], type="story", label="team=x", limit=3),
        lambda item: item.list_jobs(limit=2),
        lambda item: item.get_job(later["id"]),
        lambda item: item.job_events(job["id"]),
        lambda item: [reason["code"] for reason in item.explain_job(job["id"])["reasons"]],
        lambda item: item.get_logs(job["id"]),
        lambda item: list(item.follow_logs(job["id"], after=1)),
        lambda item: item.list_job_runs(status="COMPLETED", limit=3),
        lambda item: item.get_artifact(run_id, "result"),
        lambda item: item.get_queue(),
        lambda item: item.list_groups(limit=1),
        lambda item: item.get_group(group["id"]),
        lambda item: item.list_templates(),
        lambda item: item.get_template("alike"),
        lambda item: item.list_webhooks(),
        lambda item: item.list_deliveries(),
        lambda item: item.list_reservations(limit=2),
        lambda item: item.job_types(),
        lambda item: [worker["id"] for worker in item.workers()["items"]],
        lambda item: item.list_events(after="0", limit=5),
        lambda item: item.cancel_jobs({"ids": [later["id"]]}, dry_run=True),
        lambda item: item.retry_job_runs({"status": "FAILED"}, dry_run=True),
        lambda item: item.schedules.list(limit=2),
        lambda item: item.schedules.get("alike"),
        lambda item: item.schedules.occurrences("alike"),
        lambda item: item.schedules.preview("alike", n=3),
        lambda item: {**item.schedules.explain("alike"), "summary": None, "reasons": None},
        lambda item: item.schedules.list(order="next_run"),
        lambda item: item.schedules.preview_timetable({"cron": "30 2 * * *", "timezone": "Europe/Vienna", "n": 2}),
        lambda item: item.endpoints.get("like"),
        lambda item: item.endpoints.health("like"),
    ]
    refusals: list[Callable[[Backend], object]] = [
        lambda item: item.get_job("nonsense"),
        lambda item: item.list_jobs(cursor="nonsense"),
        lambda item: item.submit_job({"type": "stroy"}),
        lambda item: item.submit_job({"type": "story", "colour": 1}),
        lambda item: item.retry_job(job["id"]),
        lambda item: item.cancel_jobs({}),
        lambda item: item.move_job(later["id"], to="sideways"),
        lambda item: item.schedules.create({"name": "alike", "type": "story", "cron": "0 3 * * *"}),
        lambda item: item.schedules.get("like"),
    ]
    try:
        for number, ask in enumerate(questions):
            assert ask(here) == ask(there), number
        for refused in refusals:
            with pytest.raises(HoldbeatError) as one:
                refused(here)
            with pytest.raises(HoldbeatError) as other:
                refused(there)
            assert (one.value.code, one.value.detail, exit_code(one.value)) == (
                other.value.code,
                other.value.detail,
                exit_code(other.value),
            )
    finally:
        here.close()
        there.close()


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
    output = holdbeat("top", "--server", server.url).out
    assert all(title in output for title in ("SLOTS", "RUNNING", "QUEUE", "WORKERS", "NEXT RUNS"))
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


def test_top_shows_the_next_runs_however_many_schedules_there_are(holdbeat: Command) -> None:
    store = open_at(holdbeat.store, clock=SystemClock())
    try:
        store.write_sync(create_schedule, {"name": "early", "type": "story", "interval_s": 600})
        call = {"name": "call", "url": "http://127.0.0.1:9/", "interval_s": 700}
        store.write_sync(create_schedule, call, endpoint=True)
        for number in range(110):
            store.write_sync(create_schedule, {"name": f"n{number}", "type": "story", "interval_s": 90_000})
    finally:
        store.close()
    output = [schedule["name"] for schedule in holdbeat("top", "--json").json["schedules"]]
    assert output[:3] == ["early", "call", "n0"] and len(output) == 8


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
        drawn = drawn_on(ours)
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
        eventually(lambda: status_of(server) == 401)
        without = holdbeat("jobs", "--server", server.url, code=1).err
        assert "needs an API key" in without and "--key" in without and "HOLDBEAT_KEY" in without
        unknown = holdbeat("jobs", "--server", server.url, code=1, env={"HOLDBEAT_KEY": "hb_" + "x" * 43}).err
        assert "not known" in unknown and "--key" in unknown and "hb_x" not in unknown
        holdbeat("jobs", "--server", server.url, "--key", key["key"])
        assert "scope" in holdbeat("submit", "story", "--server", server.url, "--key", key["key"], code=1).err
        assert "admin" in holdbeat("keys", "list", "--server", server.url, "--key", key["key"], code=1).err
        admin = holdbeat("keys", "create", "--scope", "admin").out.strip()
        at = ("--server", server.url, "--key", admin)
        created = holdbeat("keys", "create", "--name", "deploy", "--expires", "1h", "--json", *at).json
        assert holdbeat("keys", "list", "--json", *at).json == holdbeat("keys", "list", "--json").json
        assert holdbeat("keys", "revoke", created["id"], "--json", *at).json["revoked_at"]
        holdbeat("jobs", "--server", server.url, "--key", created["key"], code=1)
    finally:
        server.stop()


def status_of(server: Server) -> int:
    """What the server answers to somebody without a key."""
    return httpx2.get(f"{server.url}/api/job-types", trust_env=False).status_code


@pytest.mark.rule("API-06")
def test_direct_requests_are_listed_explained_and_cancelled_alike_from_store_and_server(server: Server) -> None:
    holdbeat = server.command
    at = ("--server", server.url)
    answered = holdbeat("direct", "story", "prompt=x", "--json", *at).json["reservation_id"]
    waiting = [holdbeat.start("direct", "slow", *at) for _ in range(3)]
    until = time.monotonic() + 60
    try:
        while len(active := holdbeat("reservations", "--status", "ACTIVE", "--json").json["items"]) < 3 or (
            not any(item["granted_at"] for item in active)
        ):
            assert time.monotonic() < until
        last = next(item["id"] for item in active if item["granted_at"] is None)
        for words in (["reservations", "show", answered], ["reservations", "--status", "RELEASED", "--json"]):
            assert holdbeat(*words).out == holdbeat(*words, *at).out
        for where in ((), at):
            assert "completed at" in holdbeat("explain", answered, *where).out
        listed = holdbeat("reservations", *at).out
        assert answered in listed and "COMPLETED" in listed and "has its slot" in listed
        why = [holdbeat("explain", last, *where, "--json").json for where in ((), at)]
        assert [reason["code"] for reason in why[0]["reasons"]] == [reason["code"] for reason in why[1]["reasons"]]
        assert "has waited" in why[0]["summary"] and "has waited" in holdbeat("explain", last).out
        holdbeat("reservations", "cancel", last, "--reason", "enough")
        holdbeat("reservations", "cancel", next(item["id"] for item in active if item["id"] != last), *at)
        nobody = "01977e3c-5f2a-7c31-b3a8-0d5c6f0a9e11"
        for where in ((), at):
            assert "no job and no direct request" in holdbeat("explain", nobody, *where, code=4).err
    finally:
        for item in active:
            holdbeat.start("reservations", "cancel", item["id"]).communicate(timeout=60)
        for process in waiting:
            process.communicate(timeout=60)


def test_store_and_server_refuse_the_same_things_in_the_same_words(server: Server) -> None:
    holdbeat = server.command
    at = ("--server", server.url)
    for words in (
        ["endpoints", "create", "meta", "http://169.254.169.254/x", "--interval", "1h"],
        ["webhooks", "create", "http://169.254.169.254/x"],
        ["groups", "create", "{}"],
        ["groups", "create", '{"mode": "sequential"}'],
        ["groups", "create", '{"mode": "odd", "jobs": []}'],
        ["groups", "create", '{"modes": "sequential", "jobs": []}'],
        ["groups", "create", '{"mode": "parallel", "on_failure": "odd", "jobs": []}'],
        ["groups", "create", '{"mode": "parallel", "jobs": 5}'],
    ):
        here, there = holdbeat(*words, code=2), holdbeat(*words, *at, code=2)
        assert here.err == there.err and here.err.startswith("holdbeat: "), words
    holdbeat("endpoints", "create", "itself", f"{server.url}/healthz", "--interval", "1h")
    edit = ["endpoints", "edit", "itself", "--url", "http://169.254.169.254/x"]
    assert holdbeat(*edit, code=2).err == holdbeat(*edit, *at, code=2).err
    tried = [holdbeat("endpoints", "test", "itself", "--json", *where).json for where in ((), at)]
    assert tried[0].keys() == tried[1].keys() and tried[0]["status_code"] == tried[1]["status_code"] == 200
    keys = [holdbeat("submit", "story", "--json", *where).json["idempotency_key"] for where in ((), at)]
    assert all(keys) and len(set(keys)) == 2


def test_a_name_may_contain_what_separates_the_parts_of_a_path(server: Server) -> None:
    holdbeat = server.command
    at = ("--server", server.url)
    holdbeat("schedules", "create", "a/b", "story", "--interval", "1h", *at)
    holdbeat("schedules", "create", "a/b c%2Fd?e#f", "story", "--interval", "1h")
    holdbeat("templates", "create", "x/y", "story")
    for words in (
        ["schedules", "show", "a/b"],
        ["schedules", "show", "a/b c%2Fd?e#f"],
        ["templates", "show", "x/y"],
        ["schedules", "preview", "a/b", "-n", "1"],
    ):
        assert holdbeat(*words).out == holdbeat(*words, *at).out
    holdbeat("schedules", "pause", "a/b", *at)
    holdbeat("schedules", "delete", "a/b", "--yes", *at)
    holdbeat("schedules", "show", "a/b", code=4)
    holdbeat("schedules", "delete", "a/b c%2Fd?e#f", "--yes", *at)
