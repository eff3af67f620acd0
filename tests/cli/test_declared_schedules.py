"""Schedules that a program declares at every start, and what the command line says of their next run."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdbeat import App
from holdbeat.cli.output import instant
from tests.cli.command import Command


def declare(store: str) -> int:
    """What a program does at its start; the version of its schedule afterwards."""
    app = App(store)

    @app.job
    def story(words: int = 3) -> int:
        return words

    app.template_sync("short", story, default_params={"words": 1})
    declared = app.schedule_sync("nightly", story, cron="0 3 * * *", params={"words": 5})
    app.close()
    return declared.version


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_declaration_wins_over_an_operator_in_what_it_says_and_in_nothing_else(
    kind: str, tmp_path: Path, postgres_url: str
) -> None:
    store = postgres_url if kind == "postgres" else f"sqlite:///{tmp_path / 'holdbeat.db'}"
    holdbeat = Command(tmp_path, store)
    assert declare(store) == declare(store), "to declare the same once more changes nothing"
    holdbeat("schedules", "edit", "nightly", "--cron", "0 4 * * *", "--overlap", "queue_one")
    holdbeat("schedules", "pause", "nightly")
    holdbeat("templates", "edit", "short", "--params", '{"words": 9}', "--priority", "7")
    declare(store)
    answer = holdbeat("schedules", "show", "nightly", "--json").json
    assert answer["cron"] == "0 3 * * *", "the program said so"
    assert answer["overlap"] == "queue_one" and answer["paused_indefinitely"], "the program said nothing about it"
    template = holdbeat("templates", "show", "short", "--json").json
    assert template["default_params"] == {"words": 1} and template["priority"] == 7
    holdbeat("schedules", "delete", "nightly", "--yes")
    declare(store)
    assert holdbeat("schedules", "show", "nightly", "--json").json["cron"] == "0 3 * * *"


@pytest.mark.rule("TIME-05")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_next_run_that_is_listed_is_when_it_fires_jitter_included(
    kind: str, tmp_path: Path, postgres_url: str
) -> None:
    store = postgres_url if kind == "postgres" else f"sqlite:///{tmp_path / 'holdbeat.db'}"
    holdbeat = Command(tmp_path, store)
    declare(store)
    jittered = ("story", "--cron", "0 3 * * *", "--jitter", "1h")
    output = holdbeat("schedules", "create", "spread", *jittered).out
    schedule = holdbeat("schedules", "show", "spread", "--json").json
    fires_at = instant(schedule["fires_at"])
    assert fires_at is not None and fires_at != instant(schedule["next_run_at"])
    assert f"Next run: {fires_at}" in output
    listed = next(line for line in holdbeat("schedules", "list").out.splitlines() if "spread" in line)
    assert fires_at in listed
