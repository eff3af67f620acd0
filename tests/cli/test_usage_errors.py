"""Slips of a person at the keyboard: each is told, in a sentence that says what to do."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import holdbeat as holdbeat_package
from holdbeat.cli.main import VERBS, cli
from holdbeat.cli.suggestions import SYNONYMS
from tests.cli.command import Command

FAMILIES = ("schedules", "endpoints", "templates", "webhooks", "keys", "groups", "limits")
"""The families of verbs of which one makes a thing."""


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


@pytest.mark.parametrize("word", ["Accept: text/plain", "Accept", "=text/plain"])
def test_a_header_that_is_written_wrong_is_called_a_header(holdbeat: Command, word: str) -> None:
    words = ("endpoints", "create", "shop", "http://127.0.0.1:1/", "--interval", "1h")
    output = holdbeat(*words, "--header", word, code=2).err
    assert "Write a header as NAME=VALUE" in output and "label" not in output
    made = holdbeat(*words, "--header", "Accept=a=b", "--json").json
    assert made["headers"] == {"Accept": "a=b"}


@pytest.mark.rule("OPS-01")
def test_verbs_that_work_on_a_store_say_so_to_who_has_named_a_server(holdbeat: Command) -> None:
    named = {"HOLDBEAT_SERVER": "http://127.0.0.1:1"}
    for words in (["doctor", "--quick"], ["backup", "copy.db"], ["migrate"]):
        output = holdbeat(*words, env=named)
        assert f"works on a store itself: {holdbeat.store}" in output.err
        assert "HOLDBEAT_SERVER" not in output.out
    assert "HOLDBEAT_SERVER" not in holdbeat("doctor", "--quick", "--store", holdbeat.store, env=named).err
    assert "HOLDBEAT_SERVER" not in holdbeat("doctor", "--quick").err


@pytest.mark.rule("OPS-01")
@pytest.mark.parametrize("family", FAMILIES)
def test_create_and_add_are_one_verb_and_help_lists_it_once(family: str) -> None:
    def help_of(*words: str) -> str:
        result = CliRunner().invoke(cli, [family, *words, "--help"], prog_name="holdbeat")
        assert result.exit_code == 0, result.output
        return result.output

    verb = "set" if family == "limits" else "create"
    assert help_of("create") == help_of("add") == help_of(verb)
    assert f"holdbeat {family} {verb} " in help_of("add")
    verbs = [line.split()[0] for line in help_of().partition("Commands:")[2].splitlines() if line.strip()]
    assert verbs.count(verb) == 1 and "add" not in verbs


@pytest.mark.rule("OPS-01")
def test_a_thing_is_made_by_either_word(holdbeat: Command) -> None:
    holdbeat("schedules", "add", "one", "story", "--interval", "1h")
    holdbeat("schedules", "create", "two", "story", "--interval", "1h")
    assert {item["name"] for item in holdbeat("schedules", "--json").json["items"]} == {"one", "two"}
    for word in ("add", "create"):
        assert holdbeat("limits", word, f"gpu-{word}", "--resource", "gpu", "--slots", "2", "--json").json["slots"] == 2


@pytest.mark.rule("OPS-01")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("schedules create nightly story --every 5m", "There is no option --every. Did you mean --interval?"),
        ("endpoints edit shop --every 5m", "There is no option --every. Did you mean --interval?"),
        ("schedules add nightly story --intervall 5m", "There is no option --intervall. Did you mean --interval?"),
        ("schedules create nightly story --tz UTC", "There is no option --tz. Did you mean --timezone?"),
        ("schedules create nightly --type story", "--type is no option: give its value as in the usage above."),
        ("submit --type story", "--type is no option: give its value as in the usage above."),
        ("keys --jsn", "There is no option --jsn. Did you mean --json?"),
        ("--versoin", "There is no option --versoin. Did you mean --version?"),
        ("jobs --zzz", "There is no option --zzz. holdbeat jobs --help lists all."),
        ("schedules remove nightly", "There is no verb 'remove'. Did you mean delete?"),
        ("schedules set nightly", "There is no verb 'set'. Did you mean edit?"),
        ("schedules addd nightly", "There is no verb 'addd'. Did you mean create?"),
        ("keys delete ID", "There is no verb 'delete'. Did you mean revoke?"),
        ("queue xyzzy", "There is no verb 'xyzzy'. holdbeat queue --help lists all."),
        ("schedule list", "There is no verb 'schedule'. Did you mean schedules?"),
        ("enqueue story", "There is no verb 'enqueue'. Did you mean submit?"),
        ("xyzzy", "There is no verb 'xyzzy'. holdbeat --help lists all."),
    ],
)
def test_an_unknown_verb_or_option_is_answered_with_the_one_that_was_meant(words: str, sentence: str) -> None:
    result = CliRunner().invoke(cli, words.split(), prog_name="holdbeat")
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == f"Error: {sentence}"


def test_every_synonym_leads_to_a_verb_or_an_option_that_exists() -> None:
    context = click.Context(cli)
    known = set(VERBS)
    families = [cli.get_command(context, name) for name in VERBS]
    commands = [
        *families,
        *(verb for family in families if isinstance(family, click.Group) for verb in family.commands.values()),
    ]
    for command in commands:
        assert command is not None
        known |= {str(command.name), *(name for option in command.params for name in option.opts)}
    assert {name for names in SYNONYMS.values() for name in names} <= known


def _advised_verbs() -> list[tuple[str, str, str]]:
    """Each `holdbeat FAMILY VERB` that a text of the package advises, with the module."""
    advice = re.compile(r"\bholdbeat ([a-z-]+) ([a-z][a-z-]+)")
    texts = (
        (path.name, node.value)
        for path in Path(holdbeat_package.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return [(module, *words) for module, text in texts for words in advice.findall(text)]


def test_what_a_sentence_advises_to_type_exists() -> None:
    context = click.Context(cli)
    advised = _advised_verbs()
    assert ("attention.py", "deliveries", "redeliver") in advised
    for module, family, verb in advised:
        command = cli.get_command(context, family)
        if isinstance(command, click.Group):
            assert command.get_command(context, verb) is not None, f"{module}: holdbeat {family} {verb}"
