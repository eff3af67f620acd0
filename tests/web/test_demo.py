"""`holdbeat demo` is alive within seconds and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx2

from tests.api.serving import eventually


def test_the_demo_shows_work_and_ends_without_a_trace(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", "from holdbeat.wiring import main; main()", "demo", "--port", "0"],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", first)
        assert found, first
        client = httpx2.Client(base_url=found[0], timeout=10, trust_env=False)

        def answer(path: str) -> httpx2.Response | None:
            try:
                return client.get(path)
            except httpx2.TransportError:
                return None

        eventually(lambda: answer("/healthz"), 30)
        assert client.get("/").status_code == 200
        for word in ("story", "gpu", "shop front", "nightly books"):
            eventually(lambda word=word: word in client.get("/").text, 30)  # type: ignore[misc]
        direct = client.post("/api/direct/title", json={"params": {"prompt": "a fox"}}, timeout=60)
        assert direct.json()["result"] == "What a fox knew"
        assert client.get("/api/job-groups").json()["items"][0]["name"] == "publish the handbook"
        eventually(lambda: client.get("/api/job-runs", params={"status": "COMPLETED"}).json()["items"], 30)
        client.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert list(tmp_path.glob("holdbeat-demo-*")) == []
