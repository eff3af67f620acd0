"""A fault of the server: one entry in the log, and an id for the client, whatever the route."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from holdbeat.api import server as api_server
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


@pytest.mark.rule("CON-003", "API-01")
def test_a_request_that_the_store_does_not_answer_before_the_server_ends_gets_a_problem(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server, "GRACEFUL_S", 0.2)
    server = serve()
    asked = threading.Event()
    answers: list[Any] = []

    async def silent(verb: object, *args: object, **kwargs: object) -> object:
        asked.set()
        return await asyncio.Event().wait()

    def submit() -> None:
        answers.append(server.client.post("/api/jobs", json={"type": "quick"}))

    with monkeypatch.context() as patch:
        patch.setattr(server.store, "write", silent)
        client = threading.Thread(target=submit)
        client.start()
        assert asked.wait(30)
        server.run(server.server.stop())
        client.join(30)
    problem = problem_of(answers[0], 503, "commit_unknown")
    assert "idempotency key" in problem["detail"]
