"""`holdbeat demo` is alive within seconds and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2

from holdbeat.demo import program_words
from tests.waiting import eventually

LIVELY_WITHIN_S = 5.0
ENDS_WITHIN_S = 3.0


def _is_lively(client: httpx2.Client) -> bool:
    """Something runs and says how far it is, something waits, something has ended."""
    jobs = client.get("/api/jobs", params={"limit": 100}).json()["items"]
    states = {job["status"] for job in jobs}
    moves = [job for job in jobs if job["status"] == "RUNNING" and job["progress"] and job["progress"]["fraction"]]
    return bool(moves) and {"QUEUED", "COMPLETED"} <= states


def test_the_commands_that_the_demo_names_lead_to_the_program_that_runs_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    started = tmp_path / "bin" / "holdbeat"
    started.touch()
    other = tmp_path / "holdbeat"
    other.touch()
    assert program_words(started, str(started), tmp_path) == "holdbeat"
    assert program_words(started, None, tmp_path) == "bin/holdbeat"
    assert program_words(Path("bin/holdbeat"), str(other), tmp_path) == "bin/holdbeat"
    assert program_words(started, None, tmp_path / "elsewhere") == str(started)
    assert program_words(Path("-c"), None, tmp_path) == "holdbeat"


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
        match = re.search(r"http://127\.0\.0\.1:\d+", first)
        assert match, first
        client = httpx2.Client(base_url=match[0], timeout=10, trust_env=False)

        def answer(path: str) -> httpx2.Response | None:
            try:
                return client.get(path)
            except httpx2.TransportError:
                return None

        eventually(lambda: answer("/healthz"), 30)
        assert client.get("/").status_code == 200
        eventually(lambda: _is_lively(client), LIVELY_WITHIN_S)
        with ThreadPoolExecutor(1) as pool:
            # It waits for its turn while the page fills.
            direct = pool.submit(client.post, "/api/direct/title", json={"params": {"prompt": "a fox"}}, timeout=60)
            for word in ("story", "gpu", "shop front", "nightly books"):
                eventually(lambda word=word: word in client.get("/").text, 30)  # type: ignore[misc]
            assert direct.result().json()["result"] == "What a fox knew"
        assert client.get("/api/job-groups").json()["items"][0]["name"] == "publish the handbook"
        eventually(lambda: client.get("/api/job-runs", params={"status": "COMPLETED"}).json()["items"], 30)
        client.close()
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert time.monotonic() - began < ENDS_WITHIN_S
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert list(tmp_path.glob("holdbeat-demo-*")) == []
