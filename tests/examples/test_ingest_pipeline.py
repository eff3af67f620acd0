"""The ingest pipeline over a small site: cancelled half-way, killed half-way, overtaken; never from the beginning."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import apsw
import pytest

from examples.ingest_pipeline import Index
from holdbeat import PermanentFailure
from tests.examples.serving import Holdbeat, is_closed, serving, until, web_server

PAGES = 8


class Site(BaseHTTPRequestHandler):
    """Pages /0 to /7, each linking to the next; page 4 waits for the gate."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[int]] = []
    gate: ClassVar[threading.Event]

    @classmethod
    def reset(cls) -> None:
        cls.asked, cls.gate = [], threading.Event()

    def do_GET(self) -> None:
        number = int(self.path.strip("/") or 0)
        self.asked.append(number)
        if number == 4:
            self.gate.wait(30)
        words = " ".join(f"word{number}-{index}" for index in range(100))
        onward = f'<a href="/{number + 1}#top">on</a>' if number + 1 < PAGES else ""
        body = f'<p>{words}</p>{onward}<a href="http://elsewhere.invalid/">away</a>'.encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def site() -> Iterator[str]:
    Site.reset()
    with web_server(Site) as url:
        yield url + "/"
        Site.gate.set()


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Holdbeat]:
    with serving("examples.ingest_pipeline:app", tmp_path) as holdbeat:
        yield holdbeat


def chunks_of(index: Path) -> int:
    connection = apsw.Connection(str(index))
    try:
        return int(str(connection.execute("SELECT count(*) FROM chunks").get))
    finally:
        connection.close()


@pytest.mark.rule("CAN-02", "RET-04")
def test_a_cancelled_ingest_is_taken_up_where_it_stopped(pipeline: Holdbeat, site: str, tmp_path: Path) -> None:
    params = {"site": site, "index": str(tmp_path / "index.db")}
    job = pipeline.client.submit("ingest", params)
    until("half of the site is read", lambda: 4 in Site.asked)
    pipeline.client.cancel_job(job["id"], "a deploy")
    until("the run is closed", lambda: is_closed(pipeline.client, job["id"]))
    Site.gate.set()
    again = pipeline.client.retry_job(job["id"])
    done = pipeline.client.wait_job(again["id"], timeout_s=30)
    assert done["run"] is not None
    assert (done["status"], done["run"]["result"]) == ("COMPLETED", {"pages": 8})
    assert Site.asked == [0, 1, 2, 3, 4, 4, 5, 6, 7]
    assert chunks_of(tmp_path / "index.db") == 2 * PAGES


@pytest.mark.rule("REC-01", "LEASE-05", "STEP-01")
def test_an_ingest_whose_worker_was_killed_is_taken_up_where_it_stopped(
    pipeline: Holdbeat, site: str, tmp_path: Path
) -> None:
    params = {"site": site, "index": str(tmp_path / "index.db")}
    policy = {"max_attempts": 3, "base_delay_s": 0.1}
    job = pipeline.client.submit("ingest", params, retry_policy=policy)
    until("half of the site is read", lambda: 4 in Site.asked)
    pipeline.kill()
    Site.gate.set()
    pipeline.start()
    done = pipeline.client.wait_job(job["id"], timeout_s=30)
    first = pipeline.client.get_job(job["id"])
    assert done["run"] is not None and first["run"] is not None
    assert (first["status"], first["run"]["error_kind"]) == ("FAILED", "crash")
    assert (done["status"], done["retry_of"], done["run"]["result"]) == ("COMPLETED", job["id"], {"pages": 8})
    assert done["run"]["fence"] > first["run"]["fence"]
    # What was done is not repeated: only the page that was being read is read again.
    assert Site.asked == [0, 1, 2, 3, 4, 4, 5, 6, 7]
    steps = pipeline.client.list_steps(job["id"])["items"]
    assert [step["run_id"] == first["run"]["id"] for step in steps] == [True] * 4 + [False] * 4
    assert chunks_of(tmp_path / "index.db") == 2 * PAGES


@pytest.mark.rule("LEASE-03")
def test_a_run_with_an_older_fence_can_no_longer_write_to_the_index(tmp_path: Path) -> None:
    path = str(tmp_path / "index.db")
    late = Index(path, "http://site/", fence=7)
    late.upsert("http://site/a", [("a", "text", "[]")])
    newer = Index(path, "http://site/", fence=8)
    with pytest.raises(PermanentFailure, match="fence 8 > 7"):
        late.upsert("http://site/b", [("b", "text", "[]")])
    newer.upsert("http://site/b", [("b", "text", "[]")])
    other = Index(path, "http://other/", fence=3)
    other.upsert("http://other/a", [("c", "text", "[]")])
    with pytest.raises(PermanentFailure):
        Index(path, "http://site/", fence=7)
    for item in (late, newer, other):
        item.close()
    assert chunks_of(tmp_path / "index.db") == 3
