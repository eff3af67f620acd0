"""A fault of the server: one entry in the log, and an id for the client, whatever the route."""

from __future__ import annotations

import logging

import pytest

from holdbeat.store.transaction import Transaction
from tests.api.conftest import Serve
from tests.api.serving import problem_of


@pytest.mark.rule("SEC-07")
@pytest.mark.parametrize("path", ["/api/jobs", "/api/jobs/01890a5d-ac96-774b-bcce-b302099a8057"])
def test_a_fault_is_a_problem_with_an_id_and_one_entry_in_the_log(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    server = serve()

    async def broken(verb: object, *args: object, **kwargs: object) -> object:
        raise RuntimeError("the fault of this test")

    monkeypatch.setattr(server.store, "read_for_client", broken)
    with caplog.at_level(logging.ERROR):
        problem = problem_of(server.client.get(path), 500, "internal_error")
    entries = [record for record in caplog.records if record.exc_info]
    assert len(entries) == 1
    assert entries[0].name == "holdbeat.api"
    assert problem["id"] in entries[0].getMessage()


def test_the_connection_is_good_after_a_fault(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    with monkeypatch.context() as patch:

        def broken(tx: Transaction, job_id: str) -> object:
            raise RuntimeError("the fault of this test")

        patch.setattr("holdbeat.operations.jobs.load_job", broken)
        problem_of(server.client.get("/api/jobs/01890a5d-ac96-774b-bcce-b302099a8057"), 500, "internal_error")
    problem_of(server.client.get("/api/jobs/01890a5d-ac96-774b-bcce-b302099a8057"), 404, "not_found")
