"""`holdbeat limits`: what holds, set and taken back, on both stores."""

from __future__ import annotations

import pytest

from holdbeat import App
from tests.cli.command import Command


@pytest.mark.rule("LIM-01", "LIM-02")
@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["holdbeat", "postgres"])
async def test_limits_are_listed_set_and_reset_on_the_command_line(kind: str, request: pytest.FixtureRequest) -> None:
    holdbeat: Command = request.getfixturevalue(kind)
    app = App(holdbeat.store, concurrency="resources:gpu=1", slots=1)
    app.limit("api", resource="http", rate={"count": 60, "per_s": 60}, per_partition=True)
    async with app.running():
        pass
    app.close()

    def slots() -> dict[str, int | None]:
        return {limit["name"]: limit["slots"] for limit in holdbeat("limits", "list", "--json").json["items"]}

    assert slots() == {"gpu": 1, "api": None, "each:resource": 1}
    changed = holdbeat("limits", "set", "gpu", "--slots", "2", "--rate", "5/10s", "--burst", "1", "--json").json
    assert (changed["slots"], changed["origin"], changed["declared"]["slots"]) == (2, "operator", 1)
    assert changed["rate"] == {"count": 5, "per_s": 10.0, "burst": 1}
    assert holdbeat("limits", "set", "gpu", "--burst", "4", "--json").json["rate"]["burst"] == 4
    assert "60 in 60 s each" in holdbeat("limits", "list").out
    assert holdbeat("limits", "reset", "gpu", "--json").json["items"][0]["slots"] == 1
    assert slots()["gpu"] == 1
    refused = holdbeat("limits", "set", "new", "--slots", "1", code=2)
    assert "--resource, --type or --everything" in refused.err
    assert holdbeat("limits", "set", "new", "--everything", "--slots", "7", "--json").json["resource"] is None
    assert "--resource new" in refused.err
    unfair = holdbeat("limits", "set", "new", "--weight", "acme=3", code=2)
    assert "partitions take turns only with fair" in unfair.err
    turns = holdbeat("limits", "set", "new", "--fair", "--weight", "acme=3").out
    assert "everything, in turns (acme ×3)" in turns
    assert holdbeat("limits", "set", "new", "--in-order", "--json").json["weights"] is None
    assert "is removed" in holdbeat("limits", "reset", "new").out
    assert "setting concurrency" in holdbeat("limits", "reset", "gpu", code=1).err
    assert "is no rate" in holdbeat("limits", "set", "gpu", "--rate", "often", code=2).err
