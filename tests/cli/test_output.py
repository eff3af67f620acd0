"""What the command line prints: sections of verbs, exit codes, tables, durations, nothing that controls a terminal."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdbeat.cli.main import EXIT_CODES_TEXT, SECTIONS
from holdbeat.cli.output import escaped_json, without_controls
from holdbeat.domain.clock import SystemClock
from tests.cli.command import Command
from tests.cli.conftest import Server, announce
from tests.conformance.acts import open_at

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


@pytest.mark.rule("OPS-01")
def test_help_lists_the_verbs_in_sections(tmp_path: Path) -> None:
    lines = Command(tmp_path)("--help").lines
    assert [title for title in SECTIONS if f"{title}:" in lines] == [
        "Run",
        "Now",
        "Work",
        "Time",
        "System",
        "Store",
        "Other",
    ]
    work = lines[lines.index("Work:") : lines.index("Time:")]
    assert any(line.startswith("  submit ") for line in work)


def test_help_and_the_reference_word_the_exit_codes_alike(tmp_path: Path) -> None:
    assert EXIT_CODES_TEXT in " ".join(Command(tmp_path)("--help").out.split())
    assert EXIT_CODES_TEXT in REFERENCE.read_text()


def test_the_health_of_an_endpoint_is_a_table(holdbeat: Command) -> None:
    holdbeat("endpoints", "create", "shop", "http://127.0.0.1:1/", "--interval", "5m")
    lines = holdbeat("endpoints", "health", "shop").lines
    assert lines[0].split() == ["window", "succeeded", "failed", "mean", "duration"]
    assert [line.split() for line in lines[1:]] == [["1h", "0", "0"], ["4h", "0", "0"], ["24h", "0", "0"]]


def test_what_is_no_duration_is_refused_in_the_words_of_a_command_line(holdbeat: Command) -> None:
    output = holdbeat("submit", "story", "--delay", "soon", code=2).err
    assert "'soon' is no duration. Write seconds, or a text such as 90s, 10m or 1h30m." in output


def test_top_lists_direct_requests(server: Server) -> None:
    waiting = server.command.start("direct", "slow")
    try:
        while "ACTIVE" not in server.command("reservations", "--status", "ACTIVE").out:
            assert waiting.poll() is None
        lines = server.command("top", "--once").lines
        section = lines[lines.index("DIRECT REQUESTS") : lines.index("WORKERS")]
        assert any("slow" in line and ("RUNNING" in line or "QUEUED" in line) for line in section)
    finally:
        waiting.terminate()
        waiting.communicate(timeout=60)


@pytest.mark.rule("SEC-06")
def test_nothing_that_controls_a_terminal_reaches_it(server: Server) -> None:
    drawn = server.command.on_a_terminal("direct", "story", "prompt=\x1b[2Jred\x9b31m", "words=1")
    assert "red" in drawn and "\x1b[2J" not in drawn and "\x9b" not in drawn
    assert without_controls("one\n\x1b[2Jtwo\ttabs") == "one\n\\x1b[2Jtwo\\ttabs"
    assert escaped_json('{\n "a": "\x9b ü"\n}') == '{\n "a": "\\u009b ü"\n}'


@pytest.mark.rule("OPS-01", "QUE-06")
def test_a_verb_that_waited_for_a_store_also_waits_for_its_job_types(tmp_path: Path) -> None:
    holdbeat = Command(tmp_path)
    asked = holdbeat.start("types", "--json")
    assert asked.stderr is not None
    assert "waiting up to 5 s" in asked.stderr.readline()
    open_at(holdbeat.store, clock=SystemClock()).close()
    time.sleep(0.7)
    announce(holdbeat.store)
    out, _ = asked.communicate(timeout=60)
    assert asked.returncode == 0 and '"story"' in out


@pytest.mark.rule("OPS-01")
def test_a_verb_waits_for_a_store_that_is_being_created(tmp_path: Path) -> None:
    holdbeat = Command(tmp_path)
    asked = holdbeat.start("jobs", "--json")
    assert asked.stderr is not None
    assert "waiting up to 5 s" in asked.stderr.readline()
    subprocess.run(
        [sys.executable, "-m", "holdbeat", "migrate"], cwd=tmp_path, env=holdbeat.environment, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    out, _ = asked.communicate(timeout=60)
    assert asked.returncode == 0 and '"items": []' in out
