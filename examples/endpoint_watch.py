"""Endpoint watch: call addresses on schedules that adapt to what they answer.

    holdbeat serve                        # in one shell
    python examples/endpoint_watch.py http://127.0.0.1:8000/health

An Endpoint is called every minute. While it fails, calls back off 2, 4, 8 … 32 times; this program watches the events and
steers the other way where a person would: a failure deserves a closer look, so it hints a call every five seconds for
ten minutes; an answer that says "idle" deserves fewer calls, so it hints one every ten minutes for an hour. The limits
(never more often than 5 s, never less than 15 min) hold whatever is hinted.
"""

from __future__ import annotations

import sys
from typing import Any

from holdbeat import Client

CLOSER = {"interval_s": 5, "ttl_s": 600, "reason": "it failed: look closer"}
CALMER = {"interval_s": 600, "ttl_s": 3600, "reason": "it is idle"}


def watch(client: Client, url: str, *, name: str, calls: int | None = None) -> list[dict[str, Any]]:
    """Makes the endpoint if need be, then steers it; returns the hints it gave (after `calls` runs, if given)."""
    endpoint = next((e for e in client.list_endpoints()["items"] if e["name"] == name), None)
    if endpoint is None:
        endpoint = client.create_endpoint(
            {"name": name, "url": url, "interval_s": 60, "min_interval_s": 5, "max_interval_s": 900}
        )
    given: list[dict[str, Any]] = []
    seen = 0
    for event in client.events():
        if event["name"] != "run.ended" or event["schedule_id"] != endpoint["id"]:
            continue
        seen += 1
        run = client.get_job(event["job_id"])["run"]
        body = (run["result"] or {}).get("body") if run else None
        hint = CLOSER if event["data"]["status"] == "FAILED" else CALMER if body == {"state": "idle"} else None
        if hint is not None and (not given or given[-1] != hint):
            client.hint_endpoint(endpoint["id"], hint)
            given.append(hint)
            print(f"{name}: {hint['reason']}")
        if calls is not None and seen >= calls:
            break
    return given


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7450/healthz"
    with Client("http://127.0.0.1:7450") as holdbeat:
        watch(holdbeat, target, name="watched")
