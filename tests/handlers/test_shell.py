"""Shell jobs: a list of arguments, never a shell by accident, and nothing left behind."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdbeat.app import App
from holdbeat.domain.errors import Invalid
from holdbeat.domain.run import ErrorKind, RunStatus
from holdbeat.handlers.context import TRUNCATED
from holdbeat.handlers.shell import shell_job_type
from tests.engine.handler_stage import Stage, is_alive, marked

pytestmark = pytest.mark.asyncio


def shell(**options: Any) -> Stage:
    return Stage(shell_job_type(), **options)


@pytest.mark.rule("EXE-01")
async def test_a_command_that_succeeds_returns_its_code_and_the_tails_of_its_output() -> None:
    stage = shell()
    outcome = await stage.run(argv=["sh", "-c", "echo out; echo err >&2"])
    assert outcome.status is RunStatus.COMPLETED
    assert outcome.exit_code == 0
    assert outcome.result == {"exit_code": 0, "stdout_tail": "out\n", "stderr_tail": "err\n"}
    assert (stage.script.text("stdout"), stage.script.text("stderr")) == ("out\n", "err\n")


@pytest.mark.rule("EXE-01", "EXE-02")
async def test_a_command_that_fails_is_failed_with_its_exit_code_and_last_words() -> None:
    outcome = await shell().run(argv=["sh", "-c", "echo one >&2; echo no such page >&2; exit 3"])
    assert (outcome.status, outcome.error_kind, outcome.exit_code) == (RunStatus.FAILED, ErrorKind.EXIT, 3)
    assert outcome.error == "The command ended with exit code 3: no such page"
    assert outcome.result["exit_code"] == 3


@pytest.mark.rule("EXE-02")
@pytest.mark.parametrize("command", ["sleep 300 & exit 0", "setsid sleep 300 >/dev/null 2>&1 & exit 0"])
async def test_a_command_that_leaves_a_process_behind_has_failed(command: str) -> None:
    outcome = await shell().run(argv=["sh", "-c", command])
    assert (outcome.status, outcome.error_kind, outcome.exit_code) == (RunStatus.FAILED, ErrorKind.ERROR, 0)
    assert outcome.error is not None and outcome.error.startswith("The handler left a process behind")


@pytest.mark.rule("EXE-02")
async def test_a_command_ended_by_a_signal_names_the_signal() -> None:
    outcome = await shell().run(argv=["sh", "-c", "kill -SEGV $$"])
    assert (outcome.error_kind, outcome.exit_code) == (ErrorKind.EXIT, -11)
    assert "SIGSEGV" in (outcome.error or "")


@pytest.mark.rule("SEC-05")
async def test_arguments_are_never_read_by_a_shell() -> None:
    naughty = ["$(id)", "; touch /tmp/pwned", "`id`", "*", "a b", "--help", "line\nbreak"]
    outcome = await shell().run(argv=["printf", "%s|", *naughty])
    assert outcome.result["stdout_tail"] == "".join(f"{item}|" for item in naughty)


WRONG_FORMS: list[dict[str, Any]] = [
    {"argv": "echo $((1+1))"},
    {"argv": ["ls"], "shell": True},
    {"argv": []},
    {"argv": ["ls", 1]},
    {},
]


@pytest.mark.rule("SEC-05")
async def test_a_string_is_a_command_only_with_shell_true() -> None:
    job_type = shell_job_type()
    for refused in WRONG_FORMS:
        with pytest.raises(Invalid):
            job_type.check(refused)
        outcome = await shell().run(**refused)
        assert outcome.error_kind is ErrorKind.REJECTED
    outcome = await shell().run(argv="echo $((1+1))", shell=True)
    assert outcome.result["stdout_tail"] == "2\n"


@pytest.mark.rule("SEC-05")
async def test_shell_jobs_are_refused_unless_the_operator_turned_them_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shell.db"
    with closing(App(url)) as off:
        with pytest.raises(Invalid, match="shell"):
            off.enqueue_sync("shell", argv=["true"])
        assert "shell" not in {job_type.name for job_type in off.job_types}
    with closing(App(url, allow_shell=True)) as on:
        assert on.enqueue_sync("shell", argv=["true"]).job.type == "shell"


@pytest.mark.rule("EXE-01")
async def test_directory_environment_and_input_are_as_asked_for(tmp_path: Path) -> None:
    text = "ünïcode\n" * 50_000
    outcome = await shell().run(
        argv=["sh", "-c", "pwd; echo $COLOUR $HOLDBEAT_FENCE $HOLDBEAT_ATTEMPT; wc -c"],
        cwd=str(tmp_path),
        env={"COLOUR": "red"},
        stdin=text,
    )
    assert outcome.result["stdout_tail"].split() == [str(tmp_path), "red", "41", "2", str(len(text.encode()))]
    assert (await shell().run(argv=["cat"])).result["stdout_tail"] == "", "without input it is at its end"


@pytest.mark.rule("SEC-05")
async def test_the_settings_of_the_worker_are_not_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDBEAT_STORE", "postgresql://user:canary@db/x")
    monkeypatch.setenv("PGPASSWORD", "canary")
    monkeypatch.setenv("PGPASSFILE", "/canary")
    outcome = await shell().run(argv=["env"])
    assert "canary" not in outcome.result["stdout_tail"]


@pytest.mark.rule("EXE-02")
async def test_what_cannot_be_started_fails_with_the_reason() -> None:
    for params, text in (
        ({"argv": ["no-such-command-at-all"]}, "command no-such-command-at-all cannot be used: No such file"),
        ({"argv": ["/etc/passwd"]}, "command /etc/passwd cannot be used: Permission denied"),
        ({"argv": ["ls"], "cwd": "/no/such/place"}, "directory /no/such/place cannot be used"),
        ({"argv": ["ls"], "env": {"A=B": "x"}}, "environment variable name"),
    ):
        outcome = await shell().run(**params)
        assert outcome.error_kind is ErrorKind.ERROR, outcome
        assert text in (outcome.error or "")


@pytest.mark.rule("CAN-02", "CAN-03")
async def test_a_stop_reaches_the_whole_group_and_kills_what_ignores_it() -> None:
    for script in ("echo waiting; sleep 300", "trap '' TERM; echo waiting; sleep 300 & wait"):
        stage = shell()
        stage.stop_when_it_says("waiting", "cancelled", grace_s=0.3)
        outcome = await stage.run(argv=["sh", "-c", script], within_s=20)
        assert outcome.error_kind is ErrorKind.CANCELLED
        assert marked(stage.run_id) == []


@pytest.mark.rule("CAN-03", "LEASE-04")
async def test_a_stop_kills_at_once_where_there_is_no_thread_that_could_kill_after_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command that forks without end takes the threads that a container may have, too."""

    def no_thread(timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", no_thread)
    stage = shell()
    stage.stop_when_it_says("waiting", "cancelled", grace_s=300)
    running = asyncio.create_task(stage.run(argv=["sh", "-c", "trap '' TERM; echo waiting; sleep 300 & wait"]))
    await asyncio.wait([running], timeout=10)
    assert running.done()
    assert running.result().error_kind is ErrorKind.CANCELLED
    assert marked(stage.run_id) == []


@pytest.mark.rule("EXE-02")
async def test_what_a_command_leaves_in_the_background_is_killed() -> None:
    outcome = await shell().run(argv="sleep 300 & echo $!; setsid sleep 300 & echo $!", shell=True)
    assert outcome.status is RunStatus.FAILED
    assert [is_alive(int(pid)) for pid in outcome.result["stdout_tail"].split()] == [False, False]


@pytest.mark.rule("EXE-02")
async def test_endless_output_is_cut_and_the_tail_is_still_the_end() -> None:
    stage = shell(max_log_bytes=10_000)
    outcome = await stage.run(argv="head -c 50000000 /dev/zero; echo; echo the end", shell=True)
    assert outcome.result["stdout_tail"].endswith("\nthe end\n")
    assert "\x00" not in outcome.result["stdout_tail"]
    text = stage.script.text("stdout")
    assert text.endswith(TRUNCATED)
    assert "\x00" not in text


@pytest.mark.rule("EXE-02")
async def test_a_broken_pipe_ends_a_command_as_in_any_shell() -> None:
    outcome = await shell().run(argv="yes | head -n 1", shell=True, within_s=10)
    assert outcome.result["stdout_tail"] == "y\n"
    assert outcome.result["stderr_tail"] == ""
