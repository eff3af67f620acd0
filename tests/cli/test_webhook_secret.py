"""The server's own secret for messages to a plain webhook URL, on the command line."""

from __future__ import annotations

import pytest

from tests.cli.command import Command
from tests.cli.conftest import Server


@pytest.mark.rule("WEB-02")
@pytest.mark.parametrize("engine", ["holdbeat", "postgres"])
def test_the_servers_own_secret_is_shown_and_rotated(engine: str, request: pytest.FixtureRequest) -> None:
    command: Command = request.getfixturevalue(engine)
    first = command("webhooks", "secret", "--json").json
    assert first["secret"].startswith("whsec_")
    assert first["previous_secret"] is None
    assert first["secret"] in command("webhooks", "secret").out
    second = command("webhooks", "secret", "--rotate", "--json").json
    assert second["previous_secret"] == first["secret"] != second["secret"]
    assert command("webhooks", "secret", "--json").json == second


@pytest.mark.rule("WEB-02")
def test_store_and_server_show_the_same_secret(server: Server) -> None:
    there = server.command("webhooks", "secret", "--server", server.url, "--json").json
    assert server.command("webhooks", "secret", "--json").json == there
    rotated = server.command("webhooks", "secret", "--rotate", "--server", server.url, "--json").json
    assert rotated["previous_secret"] == there["secret"]
