"""One of everything that pages show, under names of the test's choice."""

from __future__ import annotations

from typing import Any

from tests.api.serving import Served, unique

CLOSED_PORT = "http://127.0.0.1:9/hook"


def paths_of_everything(served: Served, name: str = "plain") -> list[str]:
    """Makes a job of each fate, a group, a schedule, an endpoint and a webhook, and lists the pages that show them."""
    client = served.client
    label = {"about": name}
    done = served.run_job("anything", {"said": name, "nested": {name: [name]}}, labels=label)
    failed = served.run_job("fail", {"message": name}, labels=label)
    drawn = served.run_job("draw")
    waiting = served.submit("anything", {"said": name}, delay_s=3600, labels=label)
    dependent = served.submit("anything", {"said": name}, after=[{"job_id": waiting["id"], "as": "first"}])
    cancelled = served.submit("anything", {}, delay_s=3600)
    client.post(f"/api/jobs/{cancelled['id']}/cancel", json={"reason": name}).raise_for_status()
    group = made(
        client.post(
            "/api/job-groups",
            json={"name": name, "mode": "sequential", "jobs": [{"type": "fail", "params": {"message": name}},
                                                                {"type": "echo"}]},
        )
    )  # fmt: skip
    schedule = made(
        client.post(
            "/api/schedules",
            json={"name": f"{name} {unique('s')}", "cron": "30 2 * * *", "timezone": "Europe/Berlin",
                  "type": "anything", "params": {"said": name}},
        )
    )  # fmt: skip
    client.post(f"/api/schedules/{schedule['id']}/trigger").raise_for_status()
    client.post(f"/api/schedules/{schedule['id']}/pause", json={"reason": name}).raise_for_status()
    endpoint = made(
        client.post(
            "/api/endpoints",
            json={"name": f"{name} {unique('e')}", "url": f"{served.url}/healthz", "interval_s": 3600,
                  "headers": {"Authorization": "Bearer very-secret-token", "X-About": "yes"}},
        )
    )  # fmt: skip
    hints = {"interval_s": 600, "reason": name}
    client.post(f"/api/endpoints/{endpoint['id']}/hints", json=hints).raise_for_status()
    client.post("/api/direct/anything", json={"params": {"said": name}}).raise_for_status()
    return [
        "/",
        "/ui/questions",
        "/ui/queue",
        "/ui/timeline",
        "/ui/timeline?zoom=24h",
        "/ui/jobs",
        "/ui/jobs/new",
        "/ui/jobs?status=FAILED",
        f"/ui/jobs/{done['id']}",
        f"/ui/jobs/{failed['id']}",
        f"/ui/jobs/{drawn['id']}",
        f"/ui/jobs/{waiting['id']}",
        f"/ui/jobs/{dependent['id']}",
        f"/ui/jobs/{cancelled['id']}",
        "/ui/groups",
        f"/ui/groups/{group['id']}",
        "/ui/direct",
        "/ui/schedules",
        "/ui/schedules/new",
        "/ui/schedules?cron=30+2+*+*+*&timezone=Europe/Berlin",
        f"/ui/schedules/{schedule['id']}",
        f"/ui/schedules/{schedule['id']}/change",
        "/ui/endpoints",
        "/ui/endpoints/new",
        f"/ui/endpoints/{endpoint['id']}",
        f"/ui/endpoints/{endpoint['id']}/change",
        "/ui/webhooks",
        "/ui/webhooks/new",
        "/ui/events",
        "/ui/workers",
        "/ui/limits",
        "/ui/settings",
    ]


def made(answer: Any) -> dict[str, Any]:
    assert answer.status_code in (200, 201), answer.text
    body: dict[str, Any] = answer.json()
    return body
