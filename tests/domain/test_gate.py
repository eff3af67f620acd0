"""What a gate passes on, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat.domain.errors import Invalid
from holdbeat.domain.gate import end_to_end, gate_of, rest_of_path, wants_websocket

OLLAMA = {"upstream": "http://127.0.0.1:11434/", "resource": "ollama", "free": ["/api/tags", "/static/*"]}


@pytest.mark.rule("GATE-01")
def test_a_gate_takes_the_rest_of_the_path_as_it_was_sent() -> None:
    gate = gate_of("/ollama", OLLAMA)
    assert gate.upstream == "http://127.0.0.1:11434"
    assert rest_of_path(gate, b"/ollama") == (b"/", "/")
    assert rest_of_path(gate, b"/ollama/api/show%20it") == (b"/api/show%20it", "/api/show it")


@pytest.mark.rule("GATE-01", "GATE-02")
@pytest.mark.parametrize(
    "path", [b"/ollama/../admin", b"/ollama/%2e%2e/admin", b"/ollama/api/./tags", b"/ollama/a\\..\\b", b"/ollama/.."]
)
def test_a_path_that_leads_upwards_is_refused(path: bytes) -> None:
    assert rest_of_path(gate_of("/ollama", OLLAMA), path) is None


@pytest.mark.rule("GATE-02")
def test_only_the_paths_that_are_named_need_no_slot() -> None:
    gate = gate_of("/ollama", OLLAMA)
    assert gate.is_free("/api/tags") and gate.is_free("/static/a.css")
    assert not any(gate.is_free(path) for path in ("/api/tags/more", "/api/generate", "/static", "/"))


@pytest.mark.rule("GATE-02")
def test_headers_of_the_connection_are_not_passed_on_nor_those_that_it_names() -> None:
    headers = [
        (b"Connection", b"keep-alive, X-Hop"),
        (b"X-Hop", b"1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Accept", b"*/*"),
        (b"Cookie", b"a=b"),
    ]
    assert end_to_end(headers) == [(b"Accept", b"*/*"), (b"Cookie", b"a=b")]
    assert end_to_end(headers, dropped=[b"cookie"]) == [(b"Accept", b"*/*")]


@pytest.mark.rule("GATE-02")
def test_a_websocket_is_recognised_by_its_upgrade() -> None:
    assert wants_websocket([(b"upgrade", b"WebSocket")])
    assert not wants_websocket([(b"accept", b"websocket"), (b"upgrade", b"h2c")])


@pytest.mark.rule("GATE-01")
@pytest.mark.parametrize(
    "changes",
    [
        {"upstream": None},
        {"upstream": "127.0.0.1:11434"},
        {"upstream": "ftp://127.0.0.1"},
        {"upstream": "http://user:secret@127.0.0.1"},
        {"upstream": "http://127.0.0.1/?model=x"},
        {"upstream": "http://127.0.0.1:99999"},
        {"resource": " "},
        {"free": "/api/tags"},
        {"free": ["api/tags"]},
        {"wait_s": -1},
        {"wait_s": True},
        {"timeout_s": 0},
        {"max_body_mb": "64"},
        {"upstreams": "http://127.0.0.1"},
    ],
)
def test_a_gate_that_is_not_possible_is_refused_with_its_path(changes: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="The gate /ollama is not possible: "):
        gate_of("/ollama", {**OLLAMA, **changes})
