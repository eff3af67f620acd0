"""Endpoint watch: call addresses on schedules that adapt to what they answer.

    holdbeat serve                        # in one shell
    python examples/endpoint_watch.py http://127.0.0.1:8000/health

An Endpoint is called every minute. While it fails, calls back off 2, 4, 8 … 32 times. This program watches the events
and steers the other way, as a person would: a failure deserves a closer look, so it hints a call every five seconds for
ten minutes; an answer that says "idle" deserves fewer calls, so it hints one every ten minutes for an hour. The limits
(never more often than every 5 s, never less often than every 15 min) hold whatever is hinted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdbeat import Client

IDLE = {"state": "idle"}


@dataclass(frozen=True)
class Pace:
    """How often an address is called, in seconds."""

    normal_s: float = 60
    closer_s: float = 5
    calmer_s: float = 600
    slowest_s: float = 900


def watch(client: Client, url: str, *, name: str, pace: Pace | None = None) -> Iterator[dict[str, Any]]:
    """Makes the endpoint if need be, then steers it for as long as it is iterated; yields each hint it gives."""
    pace = pace or Pace()
    closer: dict[str, Any] = {"interval_s": pace.closer_s, "ttl_s": 600, "reason": "it failed: look closer"}
    calmer: dict[str, Any] = {"interval_s": pace.calmer_s, "ttl_s": 3600, "reason": "it is idle"}
    endpoint = next((item for item in client.endpoints.list(limit=500)["items"] if item["name"] == name), None)
    if endpoint is None:
        endpoint = client.endpoints.create(
            {
                "name": name,
                "url": url,
                "interval_s": pace.normal_s,
                "min_interval_s": pace.closer_s,
                "max_interval_s": pace.slowest_s,
            }
        )
    value: dict[str, Any] | None = None
    for event in client.events(name=["run.ended"]):
        if event["schedule_id"] != endpoint["id"] or event["job_id"] is None:
            continue
        run = client.get_job(event["job_id"])["run"]
        body = (run["result"] or {}).get("body") if run else None
        hint = closer if event["data"]["status"] == "FAILED" else calmer if body == IDLE else None
        if hint == value:
            continue
        value = hint
        if hint is None:
            client.endpoints.clear_hints(name)
        else:
            client.endpoints.hint(name, **hint)
            yield hint


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7450/healthz"
    with Client("http://127.0.0.1:7450") as holdbeat:
        for given in watch(holdbeat, target, name="watched"):
            print(f"{target}: {given['reason']}", flush=True)
