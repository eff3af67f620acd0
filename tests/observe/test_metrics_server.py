"""Workers have metrics of their own: on a port of theirs, for as long as they live."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdbeat.domain.errors import SettingsError
from holdbeat.observe.metrics import Metrics
from holdbeat.observe.metrics_server import MetricsServer
from tests.cli.command import Command
from tests.cli.conftest import announce
from tests.conformance.acts import open_at

pytestmark = pytest.mark.rule("OPS-05")


def sample(text: str, name: str, **labels: str) -> float:
    return sum(
        item.value
        for family in text_string_to_metric_families(text)
        for item in family.samples
        if item.name == name and labels.items() <= item.labels.items()
    )


def test_a_worker_with_a_metrics_port_serves_its_metrics(store_url: str, tmp_path: Path) -> None:
    holdbeat = Command(tmp_path, store_url)
    announce(store_url)
    for _ in range(2):
        holdbeat.submit("story")
    holdbeat.submit("broken")
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdbeat", "worker", "work:app", "--metrics-port", "0"],
        cwd=tmp_path,
        env=holdbeat.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert worker.stderr is not None
    result = None
    try:
        lines = []
        while result is None:
            lines.append(worker.stderr.readline())
            assert lines[-1], "".join(lines)
            result = re.search(r"metrics on (http://127\.0\.0\.1:\d+/metrics)", lines[-1])
        until = time.monotonic() + 60
        text = ""
        while sample(text, "holdbeat_settles_total") < 3:
            assert time.monotonic() < until and worker.poll() is None
            with urlopen(result[1], timeout=10) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain")
                text = answer.read().decode()
        assert sample(text, "holdbeat_settles_total", outcome="COMPLETED") == 2
        assert sample(text, "holdbeat_settles_total", outcome="FAILED", error_kind="error") == 1
        assert sample(text, "holdbeat_claims_total") == 3
        assert sample(text, "holdbeat_run_seconds_count", type="story") == 2
        assert sample(text, "holdbeat_workers") == 1
        assert result is not None
        with pytest.raises(HTTPError, match="404"):
            urlopen(result[1].replace("/metrics", "/api/jobs"), timeout=10)
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0, worker.stderr.read()
        worker.stderr.close()
    with pytest.raises(OSError, match="refused"):
        urlopen(result[1], timeout=10)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[MetricsServer]:
    store = open_at(f"sqlite:///{tmp_path / 'm.db'}")
    server = MetricsServer("127.0.0.1", 0, Metrics(store).exposition)
    server.start()
    yield server
    server.close()
    store.close()


def test_a_client_that_says_nothing_or_nonsense_is_in_nobody_s_way(served: MetricsServer) -> None:
    host, port = served.address.removeprefix("http://").removesuffix("/metrics").split(":")
    with socket.create_connection((host, int(port))), socket.create_connection((host, int(port))) as rude:
        rude.sendall(b"\x00\xff nonsense\r\n\r\n")
        with urlopen(served.address, timeout=10) as answer:
            assert b"holdbeat_store_up 1.0" in answer.read()
    with urlopen(Request(served.address, method="HEAD"), timeout=10) as answer:
        assert answer.read() == b"" and int(answer.headers["Content-Length"]) > 100
    asked = http.client.HTTPConnection(host, int(port), timeout=10)
    asked.request("POST", "/metrics")
    assert asked.getresponse().status == 501
    asked.close()


def test_a_taken_port_and_a_bad_host_are_refused_with_a_sentence(served: MetricsServer) -> None:
    port = int(served.address.removesuffix("/metrics").rpartition(":")[2])
    with pytest.raises(SettingsError, match="--metrics-port") as refusal:
        MetricsServer("127.0.0.1", port, lambda: (b"", "text/plain"))
    assert refusal.value.field == "metrics_port"
    with pytest.raises(SettingsError):
        MetricsServer("no such host", 0, lambda: (b"", "text/plain"))


def test_it_serves_on_ipv6_where_there_is_one() -> None:
    with contextlib.suppress(SettingsError):
        server = MetricsServer("[::1]", 0, lambda: (b"x", "text/plain"))
        server.start()
        with urlopen(server.address, timeout=10) as answer:
            assert answer.read() == b"x"
        server.close()
