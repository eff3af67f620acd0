"""Every verb explains itself, and none makes the reader wait for what it does not need."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest

from holdbeat import App
from holdbeat.cli.main import VERBS, cli
from holdbeat.store.schedules.schedules import create_schedule
from tests.cli.command import Command

HEAVY = ("fastapi", "pydantic", "starlette", "uvicorn", "prometheus_client", "rich", "psycopg", "httpx2", "jinja2")
OF_OTHERS = ("demo", "bench")
"""Verbs that bring their own tests."""


def _commands(group: click.Group, path: str) -> list[tuple[str, click.Command]]:
    collected: list[tuple[str, click.Command]] = []
    for name, command in group.commands.items():
        collected.append((f"{path} {name}", command))
        if isinstance(command, click.Group):
            collected += _commands(command, f"{path} {name}")
    return collected


def every_verb() -> list[tuple[str, click.Command]]:
    context = click.Context(cli)
    collected: list[tuple[str, click.Command]] = []
    for name in VERBS:
        if name in OF_OTHERS:
            continue
        command = cli.get_command(context, name)
        assert command is not None
        collected.append((name, command))
        if isinstance(command, click.Group):
            collected += _commands(command, name)
    return collected


@pytest.mark.rule("OPS-01")
def test_every_verb_has_help_and_an_example_that_begins_with_the_command() -> None:
    verbs = every_verb()
    assert len(verbs) > 80
    for name, command in verbs:
        text = command.get_help(click.Context(command, info_name=name))
        assert command.help, name
        assert "Example" in text and "  holdbeat " in text, name


def test_every_option_of_every_verb_is_explained() -> None:
    obvious = {"--cron", "--interval", "--timezone", "--dst", "--status", "--help"}
    for name, command in every_verb():
        for param in command.params:
            if isinstance(param, click.Option) and param.opts[0] not in obvious:
                assert param.help, f"{name} {param.opts[0]}"


def test_help_lists_all_verbs_and_the_exit_codes(tmp_path: Path) -> None:
    output = Command(tmp_path)("--help").out
    assert all(f"  {name} " in output for name in VERBS)
    assert "Exit codes: 0 done" in output


def test_an_unknown_verb_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    assert "Did you mean submit?" in Command(tmp_path)("sumbit", code=2).err


def test_a_family_of_verbs_lists_when_none_of_them_is_named(holdbeat: Command) -> None:
    for family in ("queue", "schedules", "endpoints", "groups", "templates", "webhooks", "deliveries", "keys"):
        assert holdbeat(family).out == holdbeat(family, "list").out
        assert holdbeat(family, "--json").json["items"] == []
        assert "Usage:" in holdbeat(family, "-h").out


def test_no_verb_loads_what_it_does_not_need() -> None:
    names = [name for name in VERBS if name not in (*OF_OTHERS, "serve", "worker")]
    program = (
        "import sys, click; from holdbeat.cli.main import cli\n"
        f"for name in {names!r}: cli.get_command(click.Context(cli), name)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_needs_neither_settings_nor_an_event_loop() -> None:
    program = (
        "import sys\nfrom holdbeat.wiring import main\nsys.argv = ['holdbeat', '--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print([name for name in ('asyncio', 'holdbeat.settings', 'apsw', *{HEAVY!r}) if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_verb_on_a_local_store_draws_without_rich_in_a_pipe(holdbeat: Command) -> None:
    program = (
        "import sys\nfrom holdbeat.wiring import main\nsys.argv = ['holdbeat', 'jobs']\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=holdbeat.environment
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_costs_little_more_than_the_library_that_prints_it(tmp_path: Path) -> None:
    def cpu_s(*args: str) -> float:
        def once() -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *args], stdout=subprocess.DEVNULL, check=True, cwd=tmp_path)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        return min(once() for _ in range(3))

    # In units of what click alone costs, because a busy machine makes every second dearer.
    assert cpu_s("-m", "holdbeat", "--help") < 2.5 * cpu_s("-c", "import click")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete_verbs(tmp_path: Path, shell: str) -> None:
    words = {"bash": "holdbeat sub", "zsh": "holdbeat sub", "fish": "holdbeat sub"}[shell]
    installed = Path(sys.executable).parent / "holdbeat"
    done = subprocess.run(
        [installed],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={
            **Command(tmp_path).environment,
            "_HOLDBEAT_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": "sub" if shell == "fish" else words,
            "COMP_CWORD": "sub" if shell == "fish" else "1",
        },
    )
    assert "submit" in done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("schedules pre", "preview"),
        ("endpoints he", "health"),
        ("queue re", "reorder"),
        ("keys re", "revoke"),
        ("reservations ca", "cancel"),
        ("queue list --res", "--resource"),
    ],
)
def test_shells_can_complete_the_verbs_below_a_noun(tmp_path: Path, typed: str, offered: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "holdbeat"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={
            **Command(tmp_path).environment,
            "_HOLDBEAT_COMPLETE": "bash_complete",
            "COMP_WORDS": f"holdbeat {typed}",
            "COMP_CWORD": str(len(typed.split())),
        },
    )
    assert offered in [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("submit st", ["story"]),
        ("direct s", ["slow", "story"]),
        ("submit story s", []),
        ("jobs --type bro", ["broken"]),
        ("templates create fast st", ["story"]),
        ("schedules show ni", ["nightly"]),
        ("schedules create ni", []),
        ("schedules create nightly2 st", ["story"]),
        ("endpoints show ni", []),
        ("endpoints trigger sh", ["shop"]),
    ],
)
def test_shells_can_complete_what_the_local_store_knows(holdbeat: Command, typed: str, offered: list[str]) -> None:
    store = App(holdbeat.store).store
    store.write_sync(create_schedule, {"name": "nightly", "type": "story", "cron": "0 3 * * *"})
    store.write_sync(create_schedule, {"name": "shop", "url": "http://127.0.0.1:1/", "interval_s": 60}, endpoint=True)
    store.close()
    assert _completed(holdbeat, typed) == (offered, "")


def test_a_shell_is_offered_nothing_where_there_is_no_store(tmp_path: Path) -> None:
    assert _completed(Command(tmp_path), "submit st") == ([], "")


def test_completion_costs_a_store_little_more_than_the_verb_itself(holdbeat: Command) -> None:
    program = (
        "import sys\nfrom holdbeat.wiring import main\nsys.argv = ['holdbeat']\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print('loaded', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=holdbeat.folder,
        env={**holdbeat.environment, "_HOLDBEAT_COMPLETE": "bash_complete", "COMP_WORDS": "holdbeat submit st",
             "COMP_CWORD": "2"},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["plain,story", "loaded []"]


def _completed(command: Command, typed: str) -> tuple[list[str], str]:
    """What a shell offers after these words, and what disturbed its prompt."""
    done = subprocess.run(
        [Path(sys.executable).parent / "holdbeat"], capture_output=True, text=True, check=False, cwd=command.folder,
        env={**command.environment, "_HOLDBEAT_COMPLETE": "bash_complete", "COMP_WORDS": f"holdbeat {typed}",
             "COMP_CWORD": str(len(typed.split()))},
    )  # fmt: skip
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line], done.stderr


@pytest.mark.parametrize("words", [["jobs"], ["queue"], ["schedules"], ["endpoints"], ["stats"], ["reservations"]])
def test_a_list_loads_neither_an_event_loop_nor_what_changes_things(holdbeat: Command, words: list[str]) -> None:
    unneeded = ("asyncio", "ssl", "holdbeat.store.queue.submission", "holdbeat.engine", *HEAVY)
    program = (
        f"import sys\nfrom holdbeat.wiring import main\nsys.argv = ['holdbeat', *{words!r}]\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print([name for name in {unneeded!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=holdbeat.environment
    )
    assert done.stdout.splitlines()[-1] == "[]"
