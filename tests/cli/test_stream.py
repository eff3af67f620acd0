"""`holdbeat direct --stream` and `holdbeat logs --output`, on a store and through a server."""

from __future__ import annotations

import json

import pytest

from tests.cli.command import Answer
from tests.cli.conftest import Server


@pytest.mark.rule("STR-01")
@pytest.mark.parametrize("through", ["store", "server"])
def test_a_terminal_sees_what_a_handler_emits_and_reads_it_again(server: Server, through: str) -> None:
    def serving(*words: str, code: int = 0) -> Answer:
        env = {"HOLDBEAT_SERVER": server.url} if through == "server" else {}
        return server.command(*words, code=code, env=env)

    assert serving("direct", "tale", "--stream").out == 'word0 word1 word2 {"done": true}\n'
    events = [json.loads(line) for line in serving("direct", "tale", "--stream", "--json").out.splitlines()]
    assert [one["event"] for one in events][-2:] == ["chunk", "result"] and events[-1]["data"]["result"] == "told"
    reservation = events[-1]["data"]["reservation_id"]
    assert serving("logs", reservation).out == "begins\n"
    assert serving("logs", reservation, "--output").out == 'word0 word1 word2 {"done": true}\n'
    output = serving("reservations", "show", reservation, "--json").json
    assert (output["result"], output["params"]) == ("told", {})
    assert "story" not in serving("direct", "broken", "--stream", code=1).out
    job = serving("submit", "tale", "words=1", "--wait", "--json").json
    assert serving("logs", job["id"], "--output", "-f").out == 'word0 {"done": true}\n'
