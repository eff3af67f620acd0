"""Who waits sees what they wait for, and Ctrl-C ends the waiting without losing the job."""

from __future__ import annotations

import re
import signal

import pytest

from holdbeat import Client
from tests.cli.command import Command
from tests.cli.conftest import Server

ID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.mark.rule("OPS-01")
@pytest.mark.parametrize("by_server", [False, True])
def test_waiting_shows_the_id_and_the_progress_and_ctrl_c_leaves_the_job_to_go_on(
    server: Server, by_server: bool
) -> None:
    holdbeat = server.command
    reach = ["--server", server.url] if by_server else []
    output = holdbeat.on_a_terminal("submit", "slow", "--wait", *reach, interrupted_at="% line", code=130)
    job_id = re.findall(ID, output)[0]
    assert output.startswith(f"Job {job_id}\n"), "at once, before anything else"
    assert re.search(r"RUNNING  \d+% line \d+  \d+ s", output)
    assert f"job {job_id} goes on" in output
    assert " ".join(["holdbeat cancel", job_id, *reach]) in output
    assert "Aborted" not in output and "Traceback" not in output
    assert holdbeat("show", job_id, "--json").json["status"] == "RUNNING"
    holdbeat("cancel", job_id)


@pytest.mark.rule("OPS-01")
def test_waiting_for_a_delayed_job_shows_when_it_starts(server: Server) -> None:
    output = server.command.on_a_terminal(
        "submit", "story", "--delay", "1h", "--wait", interrupted_at="starts in", code=130
    )
    assert re.search(r"QUEUED  starts in (59 m \d+ s|1 h 0 m)  \d+ s", output)
    server.command("cancel", re.findall(ID, output)[0])


def test_a_job_that_ends_leaves_no_trace_of_the_waiting_in_the_output(server: Server) -> None:
    done, drawn = server.command.beside_a_terminal("submit", "story", "--wait", "--json")
    job = done.json
    assert job["status"] == "COMPLETED" and f"Job {job['id']}" in drawn


def test_ctrl_c_in_a_pipe_names_the_job_as_well(holdbeat: Command) -> None:
    waiting = holdbeat.start("submit", "story", "--wait", "--idempotency-key", "one")
    while not (items := holdbeat("jobs", "--json").json["items"]):
        assert waiting.poll() is None
    # It is stored before the waiting begins; give the command the moment in between.
    with pytest.raises(Exception, match="timed out"):
        waiting.wait(1)
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 130 and out == ""
    assert f"holdbeat cancel {items[0]['id']}" in err and "Traceback" not in err


def test_a_client_that_waited_in_vain_is_told_for_which_job(server: Server) -> None:
    job_id = server.command.submit("story", "--delay", "1h")
    with Client(server.url) as client, pytest.raises(TimeoutError, match=f"job {job_id} has not ended within 0.2 s"):
        client.wait_job(job_id, timeout_s=0.2)
    server.command("cancel", job_id)


def test_a_direct_request_says_that_it_waits_and_that_ctrl_c_took_it_back(server: Server) -> None:
    holdbeat = server.command
    output = holdbeat.on_a_terminal("direct", "slow", "--server", server.url, interrupted_at=" s", code=130)
    assert (
        "slow waits for a slot, or runs" in output
        and "direct request is cancelled" in output
        and "Traceback" not in output
    )


@pytest.mark.rule("OPS-01")
def test_ctrl_c_at_a_question_is_an_interruption_and_no_is_a_refusal(holdbeat: Command) -> None:
    job_id = holdbeat.submit("story")
    asked = ("cancel", "--filter", "--type", "story")
    output = holdbeat.on_a_terminal(*asked, interrupted_at="[y/N]", code=130)
    assert "Aborted" not in output
    assert holdbeat("show", job_id, "--json").json["status"] == "QUEUED"
