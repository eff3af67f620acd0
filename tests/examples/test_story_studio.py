"""The story studio against a stand-in that speaks the streaming protocol of Ollama's /api/generate."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import httpx2
import pytest

from examples import story_studio
from holdbeat.testing import Stage, holdbeat_clock, holdbeat_stage
from tests.examples.serving import Holdbeat, is_closed, serving, until, web_server

__all__ = ["holdbeat_clock", "holdbeat_stage"]

WORDS = ["Once", " upon", " a", " time"]


class Model(BaseHTTPRequestHandler):
    """One JSON object to a line, the last with `done`; a prompt about `slow` waits for its gate after each word."""

    protocol_version = "HTTP/1.1"
    prompts: ClassVar[list[str]] = []
    busy: ClassVar[set[int]] = set()
    busiest: ClassVar[int] = 0
    hung_up: ClassVar[threading.Event]
    gate: ClassVar[threading.Event]

    @classmethod
    def reset(cls) -> None:
        cls.prompts, cls.busy, cls.busiest = [], set(), 0
        cls.hung_up, cls.gate = threading.Event(), threading.Event()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/api/generate" or asked["model"] != "llama3.2":
            self._answer_missing(asked["model"])
            return
        type(self).prompts.append(asked["prompt"])
        self.busy.add(id(self))
        type(self).busiest = max(self.busiest, len(self.busy))
        try:
            self._stream(is_slow="slow" in asked["prompt"])
        except OSError:
            self.hung_up.set()
            self.close_connection = True
        finally:
            self.busy.discard(id(self))

    def _answer_missing(self, model: str) -> None:
        body = json.dumps({"error": f"model '{model}' not found"}).encode()
        self.send_response(404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, *, is_slow: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/x-ndjson")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        word = 0
        while word < len(WORDS):
            self._send({"model": "llama3.2", "response": WORDS[word], "done": False})
            if not is_slow or self.gate.wait(0.02):
                word += 1
        self._send({"model": "llama3.2", "response": "", "done": True, "done_reason": "stop"})
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, piece: dict[str, Any]) -> None:
        line = json.dumps(piece).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    Model.reset()
    with web_server(Model) as url:
        yield url


@pytest.fixture(scope="module")
def studio(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holdbeat]:
    with serving("examples.story_studio:app", tmp_path_factory.mktemp("studio"), OLLAMA_URL=model) as holdbeat:
        yield holdbeat


@pytest.fixture(autouse=True)
def fresh(model: str) -> Iterator[None]:
    Model.reset()
    yield
    Model.gate.set()


def test_a_story_is_streamed_into_a_result_and_an_artifact(studio: Holdbeat) -> None:
    job = studio.client.submit("story", {"prompt": "a lighthouse", "words": 4})
    done = studio.client.wait_job(job["id"], timeout_s=30)
    assert done["run"] is not None
    assert (done["status"], done["run"]["error"]) == ("COMPLETED", None)
    assert done["run"]["result"] == {"text": "Once upon a time", "words": 4}
    assert studio.client.get_artifact(done["run"]["id"], "story.txt") == b"Once upon a time"
    assert Model.prompts == ["Write a story of 4 words about a lighthouse."]


def test_research_asks_twice_and_keeps_its_outline(studio: Holdbeat) -> None:
    answer = httpx2.post(f"{studio.client.url}/research/run", json={"params": {"question": "Why?"}}, timeout=30)
    assert answer.status_code == 200
    assert answer.json()["result"] == {"outline": "Once upon a time", "answer": "Once upon a time"}
    assert len(Model.prompts) == 2


@pytest.mark.asyncio
async def test_a_missing_model_fails_for_good_and_says_how_to_fetch_it(
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    holdbeat_stage: Callable[..., AbstractAsyncContextManager[Stage]],
) -> None:
    monkeypatch.setattr(story_studio, "OLLAMA_URL", model)
    monkeypatch.setattr(story_studio, "MODEL", "none-such")
    async with holdbeat_stage(story_studio.app) as stage:
        handle = await stage.app.enqueue(story_studio.story, prompt="a fox")
        await stage.drain()
        job = await stage.job(handle.id)
    assert job.run is not None
    assert (job.status, job.run.error_kind, job.retried_by) == ("FAILED", "rejected", None)
    assert "ollama pull none-such" in str(job.run.error)


@pytest.mark.rule("CAN-02", "CAN-04")
def test_a_cancelled_generation_hangs_up_on_the_model_and_frees_its_slot(studio: Holdbeat) -> None:
    job = studio.client.submit("story", {"prompt": "slow"})
    until("the model is asked", lambda: Model.busy)
    assert studio.client.cancel_job(job["id"], "wrong prompt")["status"] == "CANCELLED"
    assert Model.hung_up.wait(30)
    until("the run is closed", lambda: is_closed(studio.client, job["id"]))
    run = studio.client.get_job(job["id"])["run"]
    assert run is not None
    assert (run["status"], run["error_kind"]) == ("FAILED", "cancelled")
    after = studio.client.submit("story", {"prompt": "a fox"})
    assert studio.client.wait_job(after["id"], timeout_s=30)["status"] == "COMPLETED"


@pytest.mark.rule("DEC-004", "DIR-05", "CON-002")
def test_a_person_is_served_after_what_runs_and_before_the_queue(studio: Holdbeat) -> None:
    client = studio.client
    client.submit("story", {"prompt": "slow"})
    until("the model is asked", lambda: Model.busy)
    waiting = [client.submit("story", {"prompt": f"number {number}"}, priority=100) for number in range(2)]
    with ThreadPoolExecutor(1) as person:
        asked = person.submit(
            httpx2.post, f"{client.url}/story/generate", json={"params": {"prompt": "a person's fox"}}, timeout=30
        )
        until("the request is noted", lambda: client.list_reservations(status="ACTIVE")["items"])
        Model.gate.set()
        answer = asked.result()
    assert (answer.status_code, answer.json()["outcome"]) == (200, "COMPLETED")
    for job in waiting:
        assert client.wait_job(job["id"], timeout_s=30)["status"] == "COMPLETED"
    assert [prompt.rpartition(" about ")[2] for prompt in Model.prompts] == [
        "slow.", "a person's fox.", "number 0.", "number 1.",
    ]  # fmt: skip
    assert Model.busiest == 1
