"""A handler that blocks the worker's event loop blocks nothing but the worker."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

APP = """
import time
from holdbeat import App

app = App(lease_s=2, heartbeat_s=0.3, grace_s=0.5)


@app.job
async def block(seconds: float) -> str:
    time.sleep(seconds)
    return "through"
"""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[httpx2.Client]:
    (folder / "blocker.py").write_text(APP)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "holdbeat", "serve", "blocker:app", "--port", str(port)],
        cwd=folder,
        stderr=subprocess.DEVNULL,
    )
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            until = time.monotonic() + 60
            while True:
                with contextlib.suppress(httpx2.TransportError):
                    if client.get("/healthz").status_code == 200:
                        break
                assert time.monotonic() < until, "the server did not start"
            yield client
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0


@pytest.mark.rule("LEASE-02", "API-05")
def test_the_api_answers_and_the_lease_lives_while_a_handler_blocks_the_loop(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        job = client.post("/api/jobs", json={"type": "block", "params": {"seconds": 7}}).json()
        until = time.monotonic() + 60
        while client.get(f"/api/jobs/{job['id']}").json()["status"] == "QUEUED":
            assert time.monotonic() < until
        asked = 0
        while (now := client.get(f"/api/jobs/{job['id']}").json())["status"] == "RUNNING":
            assert client.get("/healthz").json() == {"status": "ok"}
            asked += 1
        assert asked > 3
        assert (now["status"], now["run"]["result"], now["retried_by"]) == ("COMPLETED", "through", None)
