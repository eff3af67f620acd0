"""`holdbeat slot` and the verbs of borrowed slots, on both stores."""

from __future__ import annotations

import platform
import sys

import pytest

from tests.cli.command import Command


@pytest.mark.rule("LIM-12")
@pytest.mark.parametrize("kind", ["holdbeat", "postgres"])
def test_a_command_runs_in_a_slot_and_slots_are_taken_and_released_by_hand(
    kind: str, request: pytest.FixtureRequest
) -> None:
    holdbeat: Command = request.getfixturevalue(kind)
    says = "import os; print('slot', os.environ['HOLDBEAT_SLOT'], int(os.environ['HOLDBEAT_FENCE']) > 0)"
    assert "slot 0 True" in holdbeat("slot", "gpu", "--", sys.executable, "-c", says).out
    assert holdbeat("slot", "gpu", "--", sys.executable, "-c", "raise SystemExit(7)", code=7)
    assert "cannot be run" in holdbeat("slot", "gpu", "--", "/no/such/program", code=127).err
    taken = holdbeat("reservations", "take", "gpu", "--ttl", "10m", "--json").json
    assert taken["slot"] == 0
    busy = holdbeat("slot", "gpu", "--wait-timeout", "0.1s", "--", sys.executable, "-c", "print('ran')", code=1)
    assert "No slot became free" in busy.err and "ran" not in busy.out
    assert "is held until" in holdbeat("reservations", "extend", taken["id"], "--ttl", "20m").out
    listed = holdbeat("reservations", "list", "--status", "ACTIVE").out
    assert "slot/gpu" in listed and f" on {platform.node()}" in listed
    assert "COMPLETED" in holdbeat("reservations", "release", taken["id"]).out
    assert "not held any more" in holdbeat("reservations", "extend", taken["id"], code=1).err
