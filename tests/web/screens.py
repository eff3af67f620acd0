"""Draws every page of the dashboard on a well-filled store, in three sizes and both themes: `make screens`.

For people to look at. The pictures are in test-artifacts/screens, named by page, width and theme.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import Page, sync_playwright

from holdbeat.demo import CONCURRENCY, fill, flaky_page, free_port, make_app
from holdbeat.domain.clock import SystemClock
from holdbeat.domain.ids import IdSource
from holdbeat.settings import Settings
from holdbeat.store.transaction import Transaction
from holdbeat.wiring import Composition
from tests.conformance.acts import open_at
from tests.waiting import eventually
from tests.web.conftest import ARTIFACTS, FLAGS, chromium
from tests.web.picture import WORK_WITHIN_S, answers, is_busy, live_through_an_hour

FOLDER = ARTIFACTS / "screens"
SIZES = ((1440, 900), (768, 1024), (390, 844))
JOBS, SCHEDULES, ENDPOINTS = 4_400, 300, 200
TEAMS = ("shop", "search", "mail", "books")
DEAD = "http://127.0.0.1:9/"
JOB_COLUMNS = ("id", "type", "title", "status", "position", "resource", "created_at", "started_at", "finished_at",
               "permanently_failed")  # fmt: skip
RUN_COLUMNS = ("id", "job_id", "type", "worker_id", "slot", "fence", "started_at", "finished_at", "status",
               "error_kind", "error")  # fmt: skip


def _history(tx: Transaction, now: datetime) -> None:
    """Three days of work before the hour that is simulated."""
    ids, dice = IdSource(), random.Random(3)
    jobs: list[tuple[Any, ...]] = []
    runs: list[tuple[Any, ...]] = []
    for number in range(JOBS):
        created = now - timedelta(hours=1.1, seconds=(JOBS - number) * 58)
        ended = created + timedelta(seconds=dice.uniform(1, 40))
        is_failed = number % 31 == 1
        status = "FAILED" if is_failed else "COMPLETED"
        error = "ConnectionError: 421 4.7.0 the mail server asked us to come back later" if is_failed else None
        type_, resource = dice.choice((("crawl", "default"), ("embed", "default"), ("newsletter", "mail")))
        job_id = ids.new(created)
        title = f"{type_.capitalize()} site-{dice.randint(1, 90)}.example"
        jobs.append((job_id, type_, title, status, 100 * number, resource, created, ended, ended, is_failed))
        runs.append((ids.new(created), job_id, type_, "studio", number % 4, 10**9 + number, created, ended, status,
                     "error" if is_failed else None, error))  # fmt: skip
    tx.insert("jobs", JOB_COLUMNS, jobs)
    tx.insert("job_runs", RUN_COLUMNS, runs)


def _serve(url: str, port: int) -> int:
    settings = Settings(store=url, port=port, slots=8, http_slots=4, concurrency=CONCURRENCY, shutdown_grace_s=0.5)
    app = make_app(settings, pace=5, chance=random.Random(11))
    with flaky_page() as page_url:
        fill(app, page_url)
        _more(app, page_url)
        return Composition().serve(app)


def _more(app: Any, page_url: str) -> None:
    """Schedules and endpoints by the hundred, of several teams, so that lists are long."""
    from holdbeat.store.schedules.schedules import create_schedule

    dice = random.Random(5)
    for number in range(SCHEDULES):
        team = TEAMS[number % 4]
        values: dict[str, Any] = {"name": f"{team} {('report', 'crawl', 'backup', 'digest')[number % 3]} {number:03d}",
                                  "type": "crawl", "params": {"site": f"{team}-{number}.example"},
                                  "labels": {"team": team}}  # fmt: skip
        values |= (
            {"cron": f"{number % 60} {number % 24} * * {number % 7}", "timezone": "Europe/Vienna"}
            if number % 3
            else {"interval_s": 3600 + 60 * number}
        )
        app.store.write_sync(create_schedule, values)
    for number in range(ENDPOINTS):
        team = TEAMS[dice.randrange(4)]
        values = {"name": f"{team} page {number:03d}", "url": page_url if number % 12 else DEAD,
                  "interval_s": 300 + number, "labels": {"team": team}}  # fmt: skip
        app.store.write_sync(create_schedule, values, endpoint=True)


def _lively(address: str) -> None:
    """Limits, pauses, failed webhooks, direct requests, and keys of nobody: what the demo alone does not have."""
    with httpx2.Client(base_url=address, timeout=60, trust_env=False) as client:
        client.put("/api/limits/api.openai", json={"resource": "mail", "slots": 3, "rate": {"count": 100, "per_s": 60}})
        client.put("/api/limits/tenant", json={"type": "crawl", "slots": 2, "per_partition": True})
        client.post("/api/webhooks", json={"url": DEAD, "events": ["job.run.completed", "job.run.failed"]})
        schedules = client.get("/api/schedules", params={"limit": 30}).json()["items"]
        for number, schedule in enumerate(schedules[:24]):
            verb = "pause" if number % 3 == 0 else "trigger"
            client.post(f"/api/schedules/{schedule['id']}/{verb}", json={"reason": "freeze"} if number % 3 == 0 else {})
        client.post(f"/api/schedules/{schedules[25]['id']}/disable")
        for endpoint in client.get("/api/endpoints", params={"limit": 60}).json()["items"]:
            client.post(f"/api/endpoints/{endpoint['id']}/trigger")
        for number in range(6):
            client.post("/api/jobs", json={"type": "crawl", "params": {"site": f"later-{number}.example"},
                                           "delay_s": 600 * (number + 1), "labels": {"team": "search"}})  # fmt: skip
        failing = {"type": "http", "params": {"url": DEAD}, "retry_policy": {"max_attempts": 0}}
        crawls = [{"type": "crawl", "params": {"site": f"archive-{number}.example"}} for number in range(3)]
        for name, mode, jobs in (("nightly import", "sequential", [crawls[0], failing, crawls[1]]),
                                 ("crawl of the archive", "parallel", [*crawls, failing])):  # fmt: skip
            client.post("/api/job-groups", json={"name": name, "mode": mode, "jobs": jobs})
        client.post("/api/direct/title", json={"params": {"prompt": "a fox"}, "wait_s": 60})
        client.post("/api/jobs", json={"type": "book", "params": {"subject": "rivers"}})


def _first(client: httpx2.Client, path: str, **params: Any) -> str | None:
    items = client.get(path, params={"limit": 1, **params}).json()["items"]
    return items[0]["id"] if items else None


def pages_of(address: str) -> dict[str, str]:
    """The name of each picture, and the page."""
    with httpx2.Client(base_url=address, timeout=60, trust_env=False) as client:
        jobs = {
            "job-running": _first(client, "/api/jobs", status="RUNNING", type="story"),
            "job-failed": _first(client, "/api/jobs", status="FAILED"),
            "job-done": _first(client, "/api/jobs", status="COMPLETED", type="story"),
            "job-asks": _first(client, "/api/jobs", status="CONTINUED", type="book"),
            "job-graph": _first(client, "/api/jobs", type="review"),
            "job-waiting": _first(client, "/api/jobs", status="QUEUED", type="story"),
        }
        pages = {name: f"/ui/jobs/{id_}" for name, id_ in jobs.items() if id_}
        schedule = client.get("/api/schedules", params={"limit": 100}).json()["items"]
        cron = next(item for item in schedule if item["cron"] and item["enabled"] and not item["paused_until"])["id"]
        endpoint = next(
            item for item in client.get("/api/endpoints", params={"limit": 60}).json()["items"] if item["url"] == DEAD
        )["id"]
        group = _first(client, "/api/job-groups", name="nightly import")
        reservation = _first(client, "/api/reservations")
    plain = ("questions", "queue", "timeline", "jobs", "jobs/new", "groups", "groups/new", "direct", "schedules",
             "schedules/new", "endpoints", "endpoints/new", "webhooks", "webhooks/new", "events", "workers", "limits",
             "keys", "keys/new", "settings", "nowhere")  # fmt: skip
    return {
        "overview": "/",
        **{name.replace("/", "-"): f"/ui/{name}" for name in plain},
        **pages,
        "jobs-failed": "/ui/jobs?status=FAILED",
        "schedules-label": "/ui/schedules?q=team%3Dshop",
        "schedule": f"/ui/schedules/{cron}",
        "schedule-change": f"/ui/schedules/{cron}/change",
        "endpoint": f"/ui/endpoints/{endpoint}",
        "endpoint-change": f"/ui/endpoints/{endpoint}/change",
        "group": f"/ui/groups/{group}",
        "reservation": f"/ui/reservations/{reservation}",
        "docs": "/docs",
    }


def _shoot(page: Page, address: str, pages: dict[str, str]) -> None:
    for name, path in pages.items():
        for width, height in SIZES:
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme="light")
            page.goto(f"{address}{path}")
            page.wait_for_timeout(250)
            page.screenshot(path=str(FOLDER / f"{name}-{width}-light.png"))
            page.emulate_media(color_scheme="dark")
            page.screenshot(path=str(FOLDER / f"{name}-{width}-dark.png"))


def _keys(address: str) -> str:
    """Several keys, one of them revoked; returns the one of the admin."""
    with httpx2.Client(base_url=address, timeout=60, trust_env=False) as client:
        key: str = client.post("/api/keys", json={"name": "anna", "scope": "admin"}).json()["key"]
        client.headers["authorization"] = f"Bearer {key}"
        for name, scope in (("deploy", "write"), ("grafana", "read"), ("night watch of the operations team", "read")):
            made = client.post("/api/keys", json={"name": name, "scope": scope}).json()
        client.delete(f"/api/keys/{made['id']}")
    return key


def draw(only: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'holdbeat.db'}"
        live_through_an_hour(url)
        store = open_at(url, concurrency=CONCURRENCY)
        store.write_sync(_history, SystemClock().now())
        store.close()
        port = free_port(0)
        server = subprocess.Popen([sys.executable, "-m", "tests.web.screens", "--serve", url, str(port)])
        address = f"http://127.0.0.1:{port}"
        try:
            eventually(lambda: answers(address), 60)
            _lively(address)
            eventually(lambda: is_busy(address), WORK_WITHIN_S)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
                page = browser.new_page(timezone_id="Europe/Vienna")
                pages = pages_of(address)
                _shoot(page, address, {name: path for name, path in pages.items() if not only or name in only})
                if not only or "login" in only:
                    key = _keys(address)
                    page.context.clear_cookies()
                    _shoot(page, address, {"login": "/login", "login-refused": "/login?refused=1"})
                    page.request.post(f"{address}/login", data={"key": key})
                    _shoot(page, address, {"keys-many": "/ui/keys"})
                browser.close()
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(20)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        sys.exit(_serve(sys.argv[2], int(sys.argv[3])))
    draw(sys.argv[1:])
