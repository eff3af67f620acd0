"""The approval example: drafted once, asked on the dashboard, sent once to each, over a kill while nobody answers."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import pytest

from tests.examples.serving import serving, until, web_server


class Model(BaseHTTPRequestHandler):
    """Speaks Ollama's /api/generate without streaming."""

    prompts: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.prompts.append(request["prompt"])
        body = json.dumps({"response": "The harbour is open again.", "done": True}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.mark.rule("WAIT-05", "STEP-01")
def test_a_letter_is_drafted_once_and_sent_once_after_a_yes_on_the_dashboard(tmp_path: Path) -> None:
    Model.prompts = []
    outbox = tmp_path / "outbox"
    with web_server(Model) as model, serving("examples.approval:app", tmp_path, OLLAMA_URL=model) as holdbeat:
        people = ["ann@example.org", "bob@example.org"]
        params = {"topic": "the harbour", "to": people, "outbox": str(outbox)}
        job = holdbeat.client.submit("newsletter", params)
        until("the handler asks", lambda: holdbeat.client.list_questions()["items"])
        holdbeat.kill()
        holdbeat.start()
        [question] = holdbeat.client.list_questions()["items"]
        assert "The harbour is open again." in question["question"] and not outbox.exists()
        address = holdbeat.address
        page = httpx2.get(f"{address}/", follow_redirects=True).text
        form = f'data-act="/api/questions/{question["id"]}/answer"'
        assert form in page and "The harbour is open again." in page
        # What the form of the page sends.
        sent = httpx2.post(f"{address}/api/questions/{question['id']}/answer", json={"answer": "yes"})
        assert sent.status_code == 200
        done = holdbeat.client.wait_job(job["id"], timeout_s=60)
        assert done["run"] is not None and done["run"]["result"] == {"sent": 2}
    assert sorted(path.name for path in outbox.iterdir()) == [f"{person}.eml" for person in people]
    assert len(Model.prompts) == 1
