"""A handler that blocks the worker's event loop blocks nothing but the worker."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdbeat.domain.clock import from_iso
from tests.fork_server import start_module

APP = """
from pathlib import Path
from holdbeat import App

app = App(lease_s=2, heartbeat_s=0.3, grace_s=0.5)


@app.job
async def block(gate: str) -> str:
    return Path(gate).read_text()
"""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[httpx2.Client]:
    (folder / "blocker.py").write_text(APP)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = start_module("holdbeat", "serve", "blocker:app", "--port", port, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            until = time.monotonic() + 60
            while True:
                with contextlib.suppress(httpx2.TransportError):
                    if client.get("/healthz").status_code == 200:
                        break
                assert time.monotonic() < until, "the server did not start"
                time.sleep(0.02)
            yield client
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0


@pytest.mark.rule("LEASE-02", "API-05")
def test_the_api_answers_and_the_lease_is_renewed_while_a_handler_blocks_the_loop(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        job = client.post("/api/jobs", json={"type": "block", "params": {"gate": str(gate)}}).json()
        until = time.monotonic() + 60

        def look() -> dict[str, Any]:
            assert time.monotonic() < until
            time.sleep(0.05)
            body: dict[str, Any] = client.get(f"/api/jobs/{job['id']}").json()
            return body

        while (now := look())["status"] == "QUEUED":
            pass
        asked = 0
        beyond_recovery = from_iso(now["lease_expires_at"]) + timedelta(seconds=5)
        while from_iso((now := look())["lease_expires_at"]) < beyond_recovery:
            assert now["status"] == "RUNNING"
            assert client.get("/healthz").json() == {"status": "ok"}
            asked += 1
        assert asked > 3
        gate.write_text("through")
        while (now := look())["status"] == "RUNNING":
            pass
        assert (now["status"], now["run"]["result"], now["retried_by"]) == ("COMPLETED", "through", None)
