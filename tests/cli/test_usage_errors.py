"""Slips of a person at the keyboard: each is told, in a sentence that says what to do."""

from __future__ import annotations

import pytest

from tests.cli.command import Command


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_pause_of_a_resource_that_nothing_uses_is_doubted(kind: str, request: pytest.FixtureRequest) -> None:
    holdbeat: Command = request.getfixturevalue("holdbeat" if kind == "sqlite" else "postgres")
    output = holdbeat("queue", "pause", "--resource", "slwo")
    assert "slwo is paused" in output.out
    assert "Did you mean slow?" in output.err and "holdbeat queue resume --resource slwo" in output.err
    for known in ("slow", "default", "http"):
        assert holdbeat("queue", "pause", "--resource", known).err == ""
    holdbeat("submit", "story", "--resource", "elsewhere")
    assert holdbeat("queue", "pause", "--resource", "elsewhere").err == "", "a job needs it"
    assert holdbeat("queue", "pause").err == ""


@pytest.mark.rule("OPS-01")
@pytest.mark.parametrize("names", ["", " , "])
def test_a_worker_for_no_resource_is_refused(holdbeat: Command, names: str) -> None:
    output = holdbeat("worker", "work:app", "--resources", names, code=2).err
    assert "--resources names none" in output


@pytest.mark.rule("OPS-01")
def test_a_flag_that_is_refused_is_called_a_flag(holdbeat: Command) -> None:
    output = holdbeat("worker", "work:app", "--slots", "-1", code=2).err
    assert "slots = -1 (--slots)" in output and "code" not in output
    assert "(--preset)" in holdbeat("serve", "work:app", "--preset", "fast", code=2).err


def test_an_instant_without_a_zone_is_local_time_and_said_in_utc(holdbeat: Command) -> None:
    vienna = {"TZ": "Europe/Vienna"}
    output = holdbeat("submit", "story", "--not-before", "2999-01-31T09:30", "--json", env=vienna)
    assert output.json["not_before"] == "2999-01-31T08:30:00.000Z"
    assert "local time" in output.err and "2999-01-31 08:30:00Z" in output.err
    exact = holdbeat("submit", "story", "--not-before", "2999-01-31T09:30Z", "--json", env=vienna)
    assert exact.json["not_before"] == "2999-01-31T09:30:00.000Z" and exact.err == ""
    changed = holdbeat("change", output.json["id"], "--not-before", "none", "--json", env=vienna)
    assert changed.json["not_before"] is None and changed.err == ""


@pytest.mark.rule("OPS-01")
def test_verbs_that_work_on_a_store_say_so_to_who_has_named_a_server(holdbeat: Command) -> None:
    named = {"HOLDBEAT_SERVER": "http://127.0.0.1:1"}
    for words in (["doctor", "--quick"], ["backup", "copy.db"], ["migrate"]):
        output = holdbeat(*words, env=named)
        assert f"works on a store itself: {holdbeat.store}" in output.err
        assert "HOLDBEAT_SERVER" not in output.out
    assert "HOLDBEAT_SERVER" not in holdbeat("doctor", "--quick", "--store", holdbeat.store, env=named).err
    assert "HOLDBEAT_SERVER" not in holdbeat("doctor", "--quick").err
