"""Sends generated requests to a server on each store, and counts how it answered.

    python -m tests.fuzz.fuzz --minutes 10 [--engine sqlite|postgres|both] [--seed n]

Half of the time schemathesis makes sequences of requests from the OpenAPI document, where one uses what another made;
the other half goes to bodies, queries and paths of our own corpus. A server must never answer with a fault, must answer
within ANSWER_S, and must show everything that it took: the lists and pages are read at the end.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

import httpx2

from holdbeat.web.pages import PAGES
from tests.fuzz.corpus import STRINGS, body_of
from tests.postgres import PostgresServer
from tests.waiting import eventually

ANSWER_S = 20.0
ROOT = Path(__file__).parents[2]
LEFT_OUT = (
    "/api/events", "/api/jobs/{id}/logs", "/api/jobs/{id}/chunks", "/api/reservations/{id}/logs",
    "/api/reservations/{id}/chunks", "/api/endpoints/{id}/test", "/api/queue/pause", "/api/keys",
)  # fmt: skip
"""Streams that end when their client goes, calls of others, and what would stop the worker or lock the fuzz out."""
WAITING = ("/api/direct/{type}", "/api/reservations")
"""Here 504 is the answer to who waited for a slot in vain, which schemathesis takes for a fault."""
LISTS = (
    "/api/jobs", "/api/queue", "/api/job-runs", "/api/job-templates", "/api/job-groups", "/api/schedules",
    "/api/endpoints", "/api/webhooks", "/api/deliveries", "/api/reservations", "/api/limits", "/api/stats",
    "/api/workers", "/api/job-types", "/api/questions", "/api/attention", "/readyz", "/metrics",
)  # fmt: skip


class Corpus:
    """Requests of the corpus to one server, and what came back."""

    def __init__(self, url: str, seed: int) -> None:
        self._client = httpx2.Client(base_url=url, timeout=ANSWER_S, follow_redirects=False)
        self._choice = Random(seed)
        document = self._client.get("/openapi.json").json()
        self._schemas = document["components"]["schemas"]
        self.operations = [
            (method.upper(), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if path not in LEFT_OUT
        ]
        self._ids: dict[str, list[str]] = {}
        """What exists, by the collection in which it stands."""
        self.answers: collections.Counter[int] = collections.Counter()
        self.faults: list[str] = []

    def close(self) -> None:
        self._client.close()

    def send(self) -> None:
        """One request of some operation."""
        method, path, operation = self._choice.choice(self.operations)
        content, headers = b"", {}
        if "requestBody" in operation:
            example = self._example(operation)
            is_valid = self._choice.random() < 0.2
            content = json.dumps(example).encode() if is_valid else body_of(example, self._choice)
            headers["Content-Type"] = "application/json"
        target = self._path(path) + self._query(operation)
        try:
            answer = self._client.request(method, target, content=content, headers=headers)
        except httpx2.HTTPError as error:
            self.faults.append(f"{method} {target[:200]} {content[:300]!r}: {error!r}")
            return
        self.answers[answer.status_code] += 1
        if answer.status_code >= 500 and answer.status_code not in (501, 503, 504):
            self.faults.append(f"{method} {target[:200]} {content[:300]!r}: {answer.status_code} {answer.text[:300]}")
        elif answer.status_code in (200, 201, 202):
            self._learn(path, answer)

    def read_lists(self) -> None:
        """What was taken can be shown by the API."""
        self._read(LISTS)

    def read_pages(self) -> None:
        """What was taken can be shown by the dashboard."""
        paths = [*(page.path for page in PAGES if "{id}" not in page.path)]
        for page in PAGES:
            known = self._ids.get(_collection(page.path), []) if page.path.endswith("/{id}") else []
            paths += [page.path.replace("{id}", quote(item, safe="")) for item in known[-50:]]
        self._read(paths)

    def _read(self, paths: Iterable[str]) -> None:
        for path in paths:
            answer = self._client.get(path)
            self.answers[answer.status_code] += 1
            # Something that was deleted meanwhile is not found.
            if answer.status_code != 200 and not (answer.status_code == 404 and path not in LISTS):
                self.faults.append(f"GET {path}: {answer.status_code} {answer.text[:300]}")

    def _example(self, operation: dict[str, Any]) -> Any:
        schema = operation["requestBody"]["content"].get("application/json", {}).get("schema", {})
        named = self._schemas.get(schema.get("$ref", "").rpartition("/")[2], {})
        return self._choice.choice(named.get("examples") or [{"type": "echo"}])

    def _path(self, path: str) -> str:
        parts = []
        for part in path.split("/"):
            if part.startswith("{"):
                known = self._ids.get(_collection(path)) or ["nothing"]
                exists = "skip" if part == "{type}" else self._choice.choice(known)
                value = exists if self._choice.random() < 0.7 else self._choice.choice(STRINGS)[:2000]
                part = quote(value, safe="") or "%20"
            parts.append(part)
        return "/".join(parts)

    def _query(self, operation: dict[str, Any]) -> str:
        names = [one["name"] for one in operation.get("parameters", ()) if one.get("in") == "query"]
        chosen = [name for name in names if name != "wait_s" and self._choice.random() < 0.3]
        pairs = [(name, self._choice.choice(STRINGS)[:2000]) for name in chosen]
        return f"?{urlencode(pairs)}" if pairs else ""

    def _learn(self, path: str, answer: httpx2.Response) -> None:
        """Keeps ids to use them in later paths."""
        try:
            body = answer.json()
        except ValueError:
            return
        items = body.get("items", [body]) if isinstance(body, dict) else []
        ids = [item["id"] for item in items if isinstance(item, dict) and isinstance(item.get("id"), str)]
        if ids:
            known = self._ids.setdefault(_collection(path), [])
            known[:] = [*known, self._choice.choice(ids)][-200:]


def _collection(path: str) -> str:
    """`jobs` of `/api/jobs/{id}/move`, of `/jobs/{id}` and of `/ui/jobs/{id}`."""
    return path.removeprefix("/api").removeprefix("/ui").split("/")[1]


def from_document(url: str, seconds: float, seed: int) -> bool:
    """Lets schemathesis make sequences of requests from the OpenAPI document; prints its report."""
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/openapi.json", "--seed", str(seed)]
    command += ["--phases", "coverage,fuzzing,stateful", "--max-time", str(max(1, int(seconds)))]
    command += ["--checks", "not_a_server_error,status_code_conformance,content_type_conformance"]
    command += ["--request-timeout", str(ANSWER_S), "--generation-database", "none", "--suppress-health-check", "all"]
    for path in LEFT_OUT + WAITING:
        command += ["--exclude-path", path]
    return subprocess.run(command, check=False).returncode == 0


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/healthz").status_code == 200
    except httpx2.HTTPError:
        return False


@contextlib.contextmanager
def serving(store: str, folder: Path) -> Iterator[str]:
    """A server of its own process; the address that it listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    environment = {**os.environ, "HOLDBEAT_DIRECT_WAIT_S": "1"}
    command = [sys.executable, "-m", "holdbeat", "serve", "tests.fuzz.fuzz_jobs:app", "--store", store]
    command += ["--port", str(port), "--concurrency", "resources:default=8,http=16"]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: server.poll() is not None or _answers(url), 60)
        if server.poll() is not None:
            raise SystemExit(f"the server did not start: {(folder / 'server.log').read_text()[-2000:]}")
        yield url
        if server.poll() is not None:
            raise SystemExit(f"the server died: {(folder / 'server.log').read_text()[-4000:]}")
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def fuzz(engine: str, store: str, folder: Path, minutes: float, seed: int) -> bool:
    with serving(store, folder) as url:
        is_well = from_document(url, minutes * 30, seed)
        corpus = Corpus(url, seed)
        until = time.monotonic() + minutes * 30
        while time.monotonic() < until:
            corpus.send()
        corpus.read_lists()
        corpus.read_pages()
        corpus.close()
    counts = ", ".join(f"{status}: {count}" for status, count in sorted(corpus.answers.items()))
    print(
        f"{engine}, seed {seed}: {corpus.answers.total()} requests of the corpus to {len(corpus.operations)} operations"
    )
    print(f"  answers by status: {counts}")
    for fault in corpus.faults[:20]:
        print(f"  FAULT {fault}")
    print(f"  faults: {len(corpus.faults)}; document: {'holds' if is_well else 'BROKEN, see above'}")
    return is_well and not corpus.faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="for each store")
    parser.add_argument("--engine", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--seed", type=int, default=1)
    terms = parser.parse_args()
    is_well = True
    with tempfile.TemporaryDirectory(prefix="holdbeat-fuzz-") as name:
        folder = Path(name)
        if terms.engine != "postgres":
            is_well &= fuzz("sqlite", f"sqlite:///{folder / 'holdbeat.db'}", folder, terms.minutes, terms.seed)
        if terms.engine != "sqlite":
            with PostgresServer() as server:
                is_well &= fuzz("postgres", server.create_database(), folder, terms.minutes, terms.seed)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
