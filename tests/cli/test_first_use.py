"""The first minutes of a stranger: empty lists say what to do next, wrong words are named, remedies are real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdbeat.domain.store_url import without_password
from tests.cli.command import Command


@pytest.fixture
def bare(tmp_path: Path) -> Command:
    """A store that `migrate` made, and that no App has opened."""
    command = Command(tmp_path)
    command("migrate")
    return command


HINTS = {
    "jobs": "holdbeat submit",
    "queue": "holdbeat submit",
    "groups": "holdbeat groups create",
    "templates": "holdbeat templates create",
    "schedules": "holdbeat schedules create",
    "endpoints": "holdbeat endpoints create",
    "webhooks": "holdbeat webhooks create",
    "deliveries": "holdbeat webhooks create",
    "reservations": "holdbeat direct",
    "workers": "holdbeat worker",
    "keys": "holdbeat keys create",
    "attention": "Nothing needs your attention.",
}


def test_an_empty_list_says_what_to_do_next_and_programs_are_not_told(bare: Command) -> None:
    for noun, hint in HINTS.items():
        output = bare(noun)
        assert hint in output.err and len(output.err.splitlines()) == 1
        assert hint not in output.out and "\x1b" not in output.err
        quiet = bare(noun, "--json")
        assert quiet.json["items"] == [] and quiet.err == ""


def test_a_list_that_its_filters_made_empty_says_so(bare: Command) -> None:
    assert bare("jobs", "--type", "nothing").err.strip() == "Nothing fits these filters."
    bare("endpoints", "create", "e", "http://127.0.0.1:1/", "--interval", "1h")
    assert "not been due" in bare("endpoints", "occurrences", "e").err
    assert bare("endpoints").err == ""


def test_the_hint_is_dim_on_a_terminal(bare: Command) -> None:
    done, drawn = bare.beside_a_terminal("jobs")
    assert done.code == 0 and "\x1b[2m" in drawn and "holdbeat submit" in drawn


def test_a_store_that_migrate_made_knows_the_types_that_every_worker_has(bare: Command, postgres_url: str) -> None:
    elsewhere = Command(bare.folder, postgres_url)
    elsewhere("migrate")
    for command in (bare, elsewhere):
        assert [item["name"] for item in command("types", "--json").json["items"]] == ["http"]
        command("endpoints", "create", "shop", "http://127.0.0.1:1/", "--interval", "1h")
        command("submit", "http", "url=http://127.0.0.1:1/")


@pytest.mark.parametrize("address", ["foo", "localhost:7450", "ftp://host", "http://", "http://a:port", ""])
def test_what_cannot_be_a_server_is_refused_at_once(bare: Command, address: str) -> None:
    output = bare("jobs", "--server", address, code=2).err
    assert "http://" in output or "no address" in output


@pytest.mark.rule("OPS-01")
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SLOTS", "2.5", "it must be a whole number"),
        ("SLOTS", "many", "it must be a whole number"),
        ("LEASE_S", "long", "it must be a number"),
        ("METRICS_PORT", "70000", "it must lie between 0 and 65535"),
    ],
)
def test_a_number_that_is_none_is_refused_in_words(bare: Command, name: str, value: str, words: str) -> None:
    output = bare("jobs", env={f"HOLDBEAT_{name}": value}, code=2).err
    assert words in output and f"HOLDBEAT_{name}" in output and "literal" not in output


@pytest.mark.rule("OPS-01")
def test_doctor_has_a_remedy_for_a_store_that_is_not_there(tmp_path: Path) -> None:
    checks = Command(tmp_path)("doctor", "--json", code=1).json["checks"]
    assert checks[0]["name"] == "store" and "holdbeat migrate" in checks[0]["remedy"]


@pytest.mark.rule("SEC-07")
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db/x",
        "postgresql://me@db/x?password=hunter2",
        "postgresql://db/x?user=me&password=hunter2&sslmode=require",
        "postgresql:///x?sslpassword=hunter2",
        "postgresql://me:hunter2@db/x?passfile=hunter2",
        "postgresql://db/x?pass%77ord=hunter2",
    ],
)
def test_no_part_of_an_address_that_opens_a_database_is_shown(url: str, tmp_path: Path) -> None:
    output = without_password(url)
    assert "hunter2" not in output and "[redacted]" in output and "/x" in output
    doctor = Command(tmp_path, url)("doctor", "--json", code=1)
    assert "hunter2" not in doctor.out + doctor.err


def test_an_address_without_a_secret_is_shown_as_it_is() -> None:
    for url in ("sqlite:////tmp/x.db", "sqlite:///x.db", "postgresql://me@db:5/x?sslmode=require"):
        assert without_password(url) == url


def run(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    """A line of a shell: `$holdbeat` is the command, in the environment of Command."""
    environment = {**Command(folder).environment, "holdbeat": f"{sys.executable} -m holdbeat"}
    return subprocess.run(
        ["sh", "-c", words], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=100,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("import missing_library\n", "ModuleNotFoundError: No module named 'missing_library'"),
        ("def (\n", "SyntaxError: invalid syntax"),
        ("raise ValueError('no key')\n", "ValueError: no key"),
    ],
)
def test_a_module_that_raises_is_shown_from_its_own_line_on(tmp_path: Path, source: str, shown: str) -> None:
    (tmp_path / "mine.py").write_text(source)
    done = run(tmp_path, "$holdbeat serve mine:app")
    assert done.returncode == 2
    assert shown in done.stderr and "mine.py" in done.stderr
    assert "importlib" not in done.stderr and "wiring.py" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"holdbeat: The module 'mine' raised {shown.partition(':')[0]} when it was imported")


def test_a_wrong_name_of_an_app_is_answered_with_the_right_one(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from holdbeat import App\nfirst = App()\nsecond = App()\n")
    holdbeat = Command(tmp_path)
    assert "It has first, second: write mine:first." in holdbeat("serve", "mine", code=2).err
    assert "write mine:first" in holdbeat("serve", "mine.py:first", code=2).err.replace("e.g. ", "write ")
    (tmp_path / "empty.py").write_text("")
    assert "Make one there: app = App()." in holdbeat("worker", "empty", code=2).err


@pytest.mark.parametrize(
    "words", ["types", "types --json", "version", "stats", "--help", "-h", "--version", "jobs --help"]
)
def test_output_that_cannot_be_written_is_a_sentence(bare: Command, words: str) -> None:
    full = run(bare.folder, f"$holdbeat {words} > /dev/full")
    assert (full.returncode, full.stderr) == (
        1,
        "holdbeat: The output could not be written: No space left on device.\n",
    )
    closed = run(bare.folder, f"$holdbeat {words} >&-")
    assert (closed.returncode, closed.stderr) == (0, "")
