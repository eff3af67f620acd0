"""A server that is killed while requests go through its gate leaves no slot taken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdbeat import App
from tests.api.model_server import ModelServer, model_server
from tests.engine.acting import rows, value
from tests.waiting import eventually

QUICK = {"lease_s": 2, "heartbeat_s": 0.4, "grace_s": 0.5, "recover_s": 0.3, "reservation_s": 2}


def serve(url: str, folder: Path, model: ModelServer) -> tuple[subprocess.Popen[bytes], str]:
    """A real server with a gate, and where it listens."""
    gate = {"/ollama": {"upstream": model.url, "resource": "ollama"}}
    settings = {"store": url, "port": 0, "gates": json.dumps(gate), "concurrency": "resources:ollama=1", **QUICK}
    log = folder / f"serve{len(list(folder.glob('serve*')))}.log"
    environment = {f"HOLDBEAT_{name.upper()}": str(text) for name, text in settings.items()}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdbeat", "serve"], stdout=out, stderr=out, cwd=folder,
            env={**os.environ, **environment},
        )  # fmt: skip

    def address() -> str | None:
        assert process.poll() is None, log.read_text()
        words = [word.rstrip(".,") for word in log.read_text().split() if word.startswith("http://127.0.0.1")]
        return words[0] if words else None

    return process, eventually(address)


@pytest.mark.rule("GATE-01", "CON-002", "REC-01")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_killed_server_leaves_no_slot_taken(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{tmp_path / 'holdbeat.db'}" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    with model_server() as model:
        doomed, address = serve(url, tmp_path, model)
        app = App(url)
        statuses: list[Any] = []

        def call() -> None:
            try:
                statuses.append(httpx2.post(f"{address}/ollama/slow", timeout=60, trust_env=False).status_code)
            except httpx2.TransportError as error:
                statuses.append(type(error).__name__)

        try:
            callers = [threading.Thread(target=call) for _ in range(3)]
            for caller in callers:
                caller.start()
            eventually(lambda: value(app.store, "SELECT count(*) FROM direct_reservations") == 3)
            eventually(lambda: value(app.store, "SELECT count(*) FROM leases") == 1)
            doomed.kill()
            doomed.wait()
            for caller in callers:
                caller.join(30)
            assert len(statuses) == 3 and 200 not in statuses
            heir, address = serve(url, tmp_path, model)
            try:
                answer = httpx2.post(f"{address}/ollama/echo", content=b"x", timeout=60, trust_env=False)
                assert answer.json() == {"size": 1}
                eventually(lambda: value(app.store, "SELECT count(*) FROM leases") == 0)
                ended = rows(
                    app.store, "SELECT status, count(*) FROM direct_reservations GROUP BY status ORDER BY status"
                )
                assert sum(count for _, count in ended) == 4 and "ACTIVE" not in dict(ended)
                assert model.most_at_once == 1
            finally:
                heir.terminate()
                heir.wait(40)
        finally:
            doomed.kill()
            app.close()
