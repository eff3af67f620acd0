"""Whoever looks at a store from the command line counts slots as the workers of that store do."""

from __future__ import annotations

import pytest

from holdbeat import App
from tests.cli.command import Command

OWN = "resources:gpu=2,slow=7,default=1"


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["holdbeat", "postgres"])
async def test_the_command_line_goes_by_the_policy_that_an_app_brought(
    kind: str, request: pytest.FixtureRequest
) -> None:
    holdbeat: Command = request.getfixturevalue(kind)
    app = App(holdbeat.store, concurrency=OWN, slots=1)
    assert holdbeat("stats", "--json").json["resources"].keys() == {"default", "http"}
    async with app.running():
        pass
    app.close()
    # The worker has ended; what it went by is still what the next one will go by.
    assert {name: each["slots"] for name, each in holdbeat("stats", "--json").json["resources"].items()} == {
        "default": 1,
        "gpu": 2,
        "slow": 7,
    }
    looked = holdbeat("top", "--json", env={"HOLDBEAT_CONCURRENCY": "global:1"}).json
    assert looked["stats"]["resources"]["slow"]["slots"] == 7
    assert "slow=7" in holdbeat("doctor", "--quick", "--json").out
