"""A word that looks like a number is a text where the job type takes nothing but a text."""

from __future__ import annotations

import pytest

from tests.cli.command import Command
from tests.cli.conftest import Server


def params_of(holdbeat: Command, *words: str) -> object:
    return holdbeat("submit", *words, "--json").json["params"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_fits_as_a_text_alone_is_a_text(kind: str, request: pytest.FixtureRequest) -> None:
    holdbeat: Command = request.getfixturevalue("holdbeat" if kind == "sqlite" else "postgres")
    assert params_of(holdbeat, "story", "prompt=5", "words=5") == {"prompt": "5", "words": 5}
    assert params_of(holdbeat, "story", "prompt=true") == {"prompt": "true"}
    assert params_of(holdbeat, "story", "prompt=1.50") == {"prompt": "1.50"}, "as it was typed"
    assert params_of(holdbeat, "story", 'prompt="5"') == {"prompt": "5"}
    assert "params.words must be an integer" in holdbeat("submit", "story", "prompt=5", "words=many", code=2).err
    holdbeat("templates", "create", "fives", "story", "prompt=5")
    assert holdbeat("templates", "show", "fives", "--json").json["default_params"] == {"prompt": "5"}
    assert params_of(holdbeat, "--template", "fives", "prompt=6") == {"prompt": "6"}
    holdbeat("schedules", "create", "nightly", "story", "prompt=5", "--cron", "0 3 * * *")
    assert holdbeat("schedules", "show", "nightly", "--json").json["params"] == {"prompt": "5"}


def test_a_server_is_understood_as_a_store_is(server: Server) -> None:
    holdbeat = server.command
    output = holdbeat("submit", "story", "prompt=5", "--server", server.url, "--json").json
    assert output["params"] == {"prompt": "5"}
    answer = holdbeat("direct", "story", "prompt=5", "words=2", "--server", server.url)
    assert answer.json == {"text": "5 5"}


def test_params_that_are_json_as_a_whole_are_taken_literally(holdbeat: Command) -> None:
    output = holdbeat("submit", "story", "--params", '{"prompt": 5}', code=2).err
    assert "params.prompt must be a string, not an integer" in output
