"""Metrics: each figure of the engine reaches the text that Prometheus reads, and every rule and panel finds its own."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdbeat import App
from holdbeat.domain import events
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import StoreDown
from holdbeat.domain.run import Outcome
from holdbeat.engine.schedule_trigger import ScheduleTrigger
from holdbeat.engine.supervisor import Supervisor
from holdbeat.engine.webhook_service import WebhookService
from holdbeat.observe.metrics import Metrics
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.schedules.schedules import create_schedule
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import claim_one, enqueue_one, open_at, settle_as
from tests.conformance.acts import complete as complete_run

pytestmark = pytest.mark.rule("OPS-05")

DEPLOY = Path(__file__).parents[2] / "deploy"


def figures(metrics: Metrics) -> Callable[..., float | None]:
    """Looks up a sample of a fresh rendering by its name and labels."""
    samples = [
        sample for family in text_string_to_metric_families(metrics.render().decode()) for sample in family.samples
    ]

    def look(name: str, **labels: str) -> float | None:
        values = [sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()]
        return sum(values) if values else None

    return look


def names(metrics: Metrics) -> set[str]:
    text = metrics.render().decode()
    families = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    return families | {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}


@pytest.mark.asyncio
async def test_a_life_of_jobs_is_counted_by_the_engine(store_url: str) -> None:
    app = App(store_url, slots=2, concurrency="unlimited", heartbeat_s=0.05, lease_s=5)

    @app.job(name="good", retries=0)
    async def good() -> int:
        return 1

    @app.job(name="bad", retries=0)
    async def bad() -> None:
        raise ValueError("no")

    store = app.store
    metrics = Metrics(store)
    trigger = ScheduleTrigger.for_settings(store, app.settings, recorder=metrics)
    webhooks = WebhookService.for_settings(store, app.settings, recorder=metrics)
    supervisor = Supervisor(store, app.settings, app.job_types, more_services=[trigger, webhooks], recorder=metrics)
    await supervisor.start()
    for _ in range(3):
        await (await app.enqueue("good")).wait(20)
    await (await app.with_options(webhook_url="http://127.0.0.1:1/nobody").enqueue("bad")).wait(20)
    await store.write(create_schedule, {"name": "tick", "type": "good", "interval_s": 1})
    look: Callable[..., float | None] = figures(metrics)
    async with asyncio.timeout(20):
        while not (
            look("holdbeat_fire_lateness_seconds_count") and look("holdbeat_heartbeats_total", result="reached")
        ):
            await asyncio.sleep(0.05)
            look = await asyncio.to_thread(figures, metrics)
        while not look("holdbeat_webhook_attempts_total", result="retry"):
            await asyncio.sleep(0.05)
            look = await asyncio.to_thread(figures, metrics)
    assert supervisor.dispatcher.behind_s() is not None
    await supervisor.stop()
    look = await asyncio.to_thread(figures, metrics)
    assert (look("holdbeat_claims_total", resource="default") or 0) >= 4
    assert (look("holdbeat_settles_total", outcome="COMPLETED") or 0) >= 3
    assert look("holdbeat_settles_total", outcome="FAILED", error_kind="error") == 1
    assert (look("holdbeat_run_seconds_count", type="good") or 0) >= 3
    assert look("holdbeat_run_seconds_count", type="bad") == 1
    assert (look("holdbeat_store_seconds_count", operation="write") or 0) > 4
    assert look("holdbeat_store_up") == 1
    assert supervisor.dispatcher.behind_s() is None
    app.close()


def test_gauges_describe_the_store_when_it_is_scraped(store_url: str) -> None:
    clock = ManualClock()
    store = open_at(store_url, clock=clock, concurrency="resources:default=1,gpu=2")
    metrics = Metrics(store, local_clock=clock)
    enqueue_one(store)
    claim_one(store)
    enqueue_one(store)
    enqueue_one(store, resource="gpu")
    clock.advance(90)
    look = figures(metrics)
    assert look("holdbeat_queue_depth", resource="default") == 1
    assert look("holdbeat_queue_depth", resource="gpu") == 1
    assert look("holdbeat_oldest_wait_seconds", resource="gpu") == 90
    assert (look("holdbeat_slots", resource="gpu"), look("holdbeat_slots_used", resource="default")) == (2, 1)
    assert (look("holdbeat_workers"), look("holdbeat_clock_skew_seconds")) == (0, 0)
    store.close()


def test_incidents_are_counted_from_what_was_committed(store_url: str) -> None:
    clock = ManualClock()
    store = open_at(store_url, clock=clock)
    metrics = Metrics(store)

    def note(tx: Transaction) -> None:
        for name in (events.LEASE_EXPIRED, events.ZOMBIE_FOUND, events.ZOMBIE_FOUND, events.CLOCK_JUMPED):
            tx.record(name, worker_id="w")

    store.write_sync(note)
    enqueue_one(store)
    taken = claim_one(store)
    complete_run(store, taken)
    assert settle_as(store, taken, Outcome.completed()) == "stale"
    look = figures(metrics)
    assert look("holdbeat_lease_expiries_total") == 1
    assert look("holdbeat_zombies_recovered_total") == 2
    assert look("holdbeat_clock_jumps_total") == 1
    assert look("holdbeat_stale_results_total") == 1
    store.close()


@pytest.fixture
def quiet(tmp_path: Path) -> Any:
    """A store in which nothing has happened, and its clock."""
    clock = ManualClock()
    store = open_at(f"sqlite:///{tmp_path / 'quiet.db'}", clock=clock)
    yield store, clock
    store.close()


def test_scrapes_in_quick_succession_share_one_reading(quiet: tuple[PersistenceAdapter, ManualClock]) -> None:
    store, clock = quiet
    metrics = Metrics(store)
    assert figures(metrics)("holdbeat_queue_depth", resource="default") == 0
    enqueue_one(store)
    clock.advance(0.9)
    assert figures(metrics)("holdbeat_queue_depth", resource="default") == 0
    clock.advance(0.2)
    assert figures(metrics)("holdbeat_queue_depth", resource="default") == 1


def test_a_store_that_is_gone_is_shown_as_down_beside_the_counters(tmp_path: Path) -> None:
    store = open_at(f"sqlite:///{tmp_path / 'gone.db'}")
    metrics = Metrics(store)
    metrics.legacy_called("/jobs/{id}")
    store.close()
    with pytest.raises(StoreDown):
        enqueue_one(store)
    look = figures(metrics)
    assert look("holdbeat_store_up") == 0
    assert look("holdbeat_queue_depth") is None
    assert look("holdbeat_legacy_calls_total", route="/jobs/{id}") == 1


def test_two_stores_in_one_process_have_metrics_of_their_own(tmp_path: Path) -> None:
    stores = [open_at(f"sqlite:///{tmp_path / name}") for name in ("a.db", "b.db")]
    first, second = (Metrics(store) for store in stores)
    first.legacy_called("/jobs")
    assert figures(first)("holdbeat_legacy_calls_total", route="/jobs") == 1
    assert figures(second)("holdbeat_legacy_calls_total", route="/jobs") is None
    for store in stores:
        store.close()


def test_every_figure_of_the_contract_is_there_from_the_start(
    quiet: tuple[PersistenceAdapter, ManualClock],
) -> None:
    enqueue_one(quiet[0])
    present = names(Metrics(quiet[0]))
    for name in (
        "queue_depth", "oldest_wait_seconds", "claims_total", "settles_total", "run_seconds", "lease_expiries_total",
        "stale_results_total", "zombies_recovered_total", "double_fires_refused_total", "trigger_lag_seconds",
        "heartbeat_age_seconds", "webhook_attempts_total", "store_seconds", "clock_jumps_total", "clock_skew_seconds",
        "legacy_calls_total",
    ):  # fmt: skip
        assert f"holdbeat_{name}" in present, name
    assert all(name.startswith("holdbeat_") for name in present)


def used_names(text: str) -> set[str]:
    return set(re.findall(r"\bholdbeat_[a-z_]+\b", text))


def test_every_alert_and_panel_asks_for_a_figure_that_exists(
    quiet: tuple[PersistenceAdapter, ManualClock],
) -> None:
    store, _ = quiet
    enqueue_one(store)
    metrics = Metrics(store)
    metrics.run_ended("noop", 1.0)
    present = names(metrics)
    alerts = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    dashboard = json.loads((DEPLOY / "grafana" / "holdbeat.json").read_text())
    queries = "\n".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    for asked in (
        used_names("\n".join(re.findall(r"expr: (?:>-\n)?(.+?)\n +(?:for|labels):", alerts, re.S))),
        used_names(queries),
    ):
        assert asked and asked <= present, asked - present


def test_there_is_an_alert_for_each_kind_of_trouble() -> None:
    asked = used_names((DEPLOY / "prometheus" / "alerts.yml").read_text())
    assert {
        "holdbeat_zombies_recovered_total", "holdbeat_stale_results_total", "holdbeat_double_fires_refused_total",
        "holdbeat_lease_expiries_total", "holdbeat_clock_skew_seconds", "holdbeat_queue_depth",
        "holdbeat_trigger_lag_seconds", "holdbeat_webhook_attempts_total",
    } <= asked  # fmt: skip
