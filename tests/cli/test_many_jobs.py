"""Verbs that work on many things: what they would do, what they did, and a bar while they do it."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from holdbeat import App
from holdbeat.settings import Settings
from tests.cli.command import Command


def fill(store: str, count: int) -> None:
    app = App(settings=Settings.load({"store": store}, environ={}))
    app.enqueue_many_sync([app.call("story") for _ in range(count)])
    app.close()


@pytest.mark.parametrize("kind", ["holdbeat", "postgres"])
def test_a_dry_run_counts_what_would_be_done(kind: str, request: pytest.FixtureRequest) -> None:
    holdbeat: Command = request.getfixturevalue(kind)
    fill(holdbeat.store, 3)
    few = ("--filter", "--type", "story")
    assert holdbeat("cancel", *few, "--dry-run").lines[-1] == "3 would be cancelled."
    assert "3 jobs will be cancelled. Say --yes" in holdbeat("cancel", *few, code=2).err
    assert holdbeat("cancel", *few, "--yes").lines[-1] == "3 of 3 cancelled."
    ended = (*few, "--status", "CANCELLED")
    assert holdbeat("retry", *ended, "--dry-run").lines[-1] == "3 would be retried."
    assert "3 jobs will be retried. Say --yes" in holdbeat("retry", *ended, code=2).err
    assert holdbeat("retry", *ended, "--yes").lines[-1] == "3 of 3 retried."


@pytest.mark.parametrize("kind", ["holdbeat", "postgres"])
def test_many_are_cancelled_in_parts_with_a_bar_and_all_of_them_are(kind: str, request: pytest.FixtureRequest) -> None:
    holdbeat: Command = request.getfixturevalue(kind)
    fill(holdbeat.store, 1203)
    done, drawn = holdbeat.beside_a_terminal("cancel", "--filter", "--type", "story", "--yes", "--json")
    result = json.loads(done.out)
    assert (done.code, result["matched"], result["changed"], len(set(result["ids"]))) == (0, 1203, 1203, 1203)
    assert "Cancel" in drawn and "100%" in drawn
    stats = holdbeat("stats", "--json").json["jobs"]
    assert (stats["CANCELLED"], stats["QUEUED"]) == (1203, 0)


@pytest.mark.parametrize("kind", ["holdbeat", "postgres"])
def test_prune_shows_a_bar_on_a_terminal_and_none_in_a_pipe(kind: str, request: pytest.FixtureRequest) -> None:
    holdbeat: Command = request.getfixturevalue(kind)
    fill(holdbeat.store, 450)
    holdbeat("cancel", "--filter", "--type", "story", "--yes")
    done, drawn = holdbeat.beside_a_terminal("prune", "--older-than-days", "0", "--yes", "--json")
    assert done.code == 0 and json.loads(done.out)["taken"]["jobs"] == 450
    assert "Prune" in drawn and "100%" in drawn
    assert holdbeat("prune", "--older-than-days", "0", "--yes").err == ""


@pytest.mark.rule("REC-05")
def test_recover_goes_on_after_something_that_cannot_be_repaired(holdbeat: Command, tmp_path: Path) -> None:
    from tests.conformance.acts import claim_some, enqueue_one, open_at

    url = f"sqlite:///{tmp_path / 'broken.db'}"
    store = open_at(url)
    jobs = [enqueue_one(store).id for _ in range(3)]
    for slot in range(3):
        claim_some(store, 1, worker="ghost", first_slot=slot)
    store.close()
    connection = apsw.Connection(str(tmp_path / "broken.db"))
    connection.execute('UPDATE jobs SET retry_policy = \'{"max_attempts": "many"}\' WHERE id = ?', (jobs[0],))
    connection.execute("UPDATE leases SET expires_at = '2020-01-01T00:00:00.000Z'")
    connection.close()
    answer = holdbeat("recover", "--store", url, "--json", code=1).json
    assert len([item for item in answer["repaired"] if item["what"] == "run of a worker that is gone"]) == 2
    assert len(answer["failed"]) >= 1 and all(item["error"] for item in answer["failed"])
    again = holdbeat("recover", "--store", url, code=1)
    assert "could not be repaired" in again.err
