"""The endpoint watch against a real server, and a site that fails, idles and works."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import pytest

from examples.endpoint_watch import Pace, watch
from tests.examples.serving import serving, until, web_server

PACE = Pace(normal_s=1, closer_s=1, calmer_s=2, slowest_s=4)


class Watched(BaseHTTPRequestHandler):
    answer: ClassVar[tuple[int, bytes]] = (500, b"{}")

    def do_GET(self) -> None:
        status, body = self.answer
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.mark.rule("GOV-03", "GOV-08", "GOV-10")
def test_a_failing_address_is_looked_at_closer_an_idle_one_left_in_peace_and_a_working_one_called_as_planned(
    tmp_path: Path,
) -> None:
    with web_server(Watched) as site, serving(None, tmp_path) as holdbeat, ThreadPoolExecutor(1) as beside:
        client = holdbeat.client
        hints = watch(client, site, name="shop", pace=PACE)
        assert next(hints)["reason"] == "it failed: look closer"
        failing = client.endpoints.get("shop")
        assert (failing["hint_interval_s"], failing["hint_interval_reason"]) == (1, "it failed: look closer")
        Watched.answer = (200, b'{"state": "idle"}')
        assert next(hints)["reason"] == "it is idle"
        idle = client.endpoints.get("shop")
        assert (idle["hint_interval_s"], idle["failure_count"]) == (2, 0)
        assert (idle["last_decision"] or {})["winner"] == "hint_interval"
        Watched.answer = (200, b'{"state": "busy"}')
        next_hint = beside.submit(next, hints)
        until("the hint is cleared", lambda: client.endpoints.get("shop")["hint_interval_s"] is None)
        Watched.answer = (500, b"{}")
        assert next_hint.result()["reason"] == "it failed: look closer"
