"""Metrics for Prometheus, in a registry of their own (OPS-05).

Counters grow as the engine and the commits of this process tell of things; gauges that describe the store are read from
it at each scrape, so every process shows the same. This module imports prometheus_client: import it only where metrics
are asked for.
"""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from holdbeat.domain import events
from holdbeat.domain.clock import Clock, SystemClock
from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.lease import Claim, Settlement
from holdbeat.domain.run import ErrorKind, RunStatus
from holdbeat.observe.recorder import Recorder
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.gauges import StoreGauges, read_gauges
from holdbeat.store.transaction import Row

FRESH_S = 1.0
COST_FACTOR = 20.0
"""A reading of the store is used for a second, and for twenty times as long as it took: scraping stays cheap."""

RUN_BUCKETS = (0.01, 0.05, 0.25, 1, 5, 15, 60, 300, 900, 3600, 14_400)
LATENCY_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
LATENESS_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 15, 60, 600)
WEBHOOK_RESULTS = ("delivered", "retry", "failed", "postponed")


class Metrics(Recorder):
    """Figures of the engine, of commits and of the store, as text for `/metrics`."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, store: PersistenceAdapter, *, local_clock: Clock | None = None) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=True)
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self._claims = counter("holdbeat_claims", "Jobs and direct requests claimed by this process.", ["resource"])
        self._settles = counter(
            "holdbeat_settles",
            "Runs and direct requests given back by this process, by outcome.",
            ["outcome", "error_kind"],
        )
        self._run_seconds = histogram("holdbeat_run_seconds", "How long handlers ran.", ["type"], buckets=RUN_BUCKETS)
        self._heartbeats = counter("holdbeat_heartbeats", "Heartbeats of this process, by result.", ["result"])
        self._webhook_attempts = counter(
            "holdbeat_webhook_attempts", "Attempts to deliver webhooks, by result.", ["result"]
        )
        self._fire_lateness = histogram(
            "holdbeat_fire_lateness_seconds",
            "How long after its due time a schedule fired.",
            buckets=LATENESS_BUCKETS,
        )
        self._gate_requests = counter(
            "holdbeat_gate_requests", "Requests through gates, by outcome.", ["gate", "outcome"]
        )
        self._gate_waits, self._gate_seconds = (
            histogram(name, f"How long requests through gates {what}.", ["gate"], buckets=RUN_BUCKETS)
            for name, what in (
                ("holdbeat_gate_wait_seconds", "waited for a slot"),
                ("holdbeat_gate_seconds", "held a slot"),
            )
        )
        self._legacy_calls = counter("holdbeat_legacy_calls", "Calls of the legacy API.", ["route"])
        store_seconds = histogram(
            "holdbeat_store_seconds",
            "How long a call of the store took its caller.",
            ["operation"],
            buckets=LATENCY_BUCKETS,
        )
        # Looked up once: it takes longer than to count.
        self._store_seconds = {operation: store_seconds.labels(operation) for operation in ("read", "write")}
        self._runs_overdue = counter("holdbeat_runs_overdue", "Runs that went on after their timeout.")
        self._start_at_zero()
        local = local_clock or SystemClock()
        skew = Gauge("holdbeat_clock_skew_seconds", "The store's clock minus this machine's.", registry=registry)
        skew.set_function(lambda: (store.clock.now() - local.now()).total_seconds())
        registry.register(_StoreCollector(store))
        store.on_commit(self._count_overdue)
        store.timer = lambda operation, took_s: self._store_seconds[operation].observe(took_s)

    def render(self) -> bytes:
        """The text of `/metrics`. It may read the store and wait for that: call it from a thread beside the loop."""
        return generate_latest(self.registry)

    def exposition(self) -> tuple[bytes, str]:
        """The text and its content type."""
        return self.render(), self.content_type

    # --- what the engine tells ---------------------------------------------------------------------------

    def record_cycle(self, claims: Sequence[Claim], settlements: Sequence[Settlement]) -> None:
        for resource, count in Tally([claim.lease.resource for claim in claims]).items():
            self._claims.labels(resource).inc(count)
        outcomes = Tally(
            [(settlement.outcome.status, settlement.outcome.error_kind or "") for settlement in settlements]
        )
        for (status, kind), count in outcomes.items():
            self._settles.labels(status, kind).inc(count)

    def run_ended(self, type_: str, ran_s: float) -> None:
        self._run_seconds.labels(type_).observe(ran_s)

    def beat(self, reached: bool) -> None:
        self._heartbeats.labels("reached" if reached else "failed").inc()

    def webhook_attempted(self, result: str) -> None:
        self._webhook_attempts.labels(result).inc()

    def fired(self, late_s: float, count: int = 1) -> None:
        for _ in range(count):
            self._fire_lateness.observe(late_s)

    def gate_passed(self, gate: str, outcome: str, waited_s: float, ran_s: float) -> None:
        self._gate_requests.labels(gate, outcome).inc()
        if outcome != "free":
            self._gate_waits.labels(gate).observe(waited_s)
            self._gate_seconds.labels(gate).observe(ran_s)

    def legacy_called(self, route: str) -> None:
        self._legacy_calls.labels(route).inc()

    # --- what the store tells ----------------------------------------------------------------------------

    def _count_overdue(self, committed: Sequence[Row]) -> None:
        self._runs_overdue.inc(sum(row[0] == events.RUN_OVERDUE for row in committed))

    def _start_at_zero(self) -> None:
        """A series that appears with its first failure has no increase to alert on."""
        for status in RunStatus:
            self._settles.labels(status, "")
        for kind in ErrorKind:
            self._settles.labels(RunStatus.FAILED, kind)
        for result in WEBHOOK_RESULTS:
            self._webhook_attempts.labels(result)
        for result in ("reached", "failed"):
            self._heartbeats.labels(result)


class _StoreCollector(Collector):
    """Gauges from one reading of the store."""

    def __init__(self, store: PersistenceAdapter) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: StoreGauges | None = None
        self._good_until = 0.0

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        gauges = self._read()
        yield GaugeMetricFamily(
            "holdbeat_store_up", "Whether the store could be read.", value=0 if gauges is None else 1
        )
        if (log_bytes := self._store.log_bytes()) is not None:
            yield GaugeMetricFamily("holdbeat_store_log_bytes", "Size of SQLite's write-ahead log.", value=log_bytes)
        if gauges is not None:
            yield from _families(gauges)

    def _read(self) -> StoreGauges | None:
        clock = self._store.clock
        with self._lock:
            began = clock.monotonic()
            if self._kept is not None and began < self._good_until:
                return self._kept
            try:
                self._kept = self._store.read_sync(read_gauges)
            except HoldbeatError:
                self._kept = None
                return None
            ended = clock.monotonic()
            self._good_until = ended + max(FRESH_S, COST_FACTOR * (ended - began))
            return self._kept


def _families(gauges: StoreGauges) -> Iterator[Metric]:
    depth = GaugeMetricFamily(
        "holdbeat_queue_depth", "Jobs that could run, and direct requests, waiting for a slot.", labels=["resource"]
    )
    oldest = GaugeMetricFamily(
        "holdbeat_oldest_wait_seconds", "How long the first of them has waited.", labels=["resource"]
    )
    slots = GaugeMetricFamily("holdbeat_slots", "Slots of a resource, where it has a limit.", labels=["resource"])
    used = GaugeMetricFamily("holdbeat_slots_used", "Leases on a resource.", labels=["resource"])
    for name, figures in gauges.resources.items():
        depth.add_metric([name], figures["waiting"])
        oldest.add_metric([name], figures["oldest_wait_s"] or 0.0)
        used.add_metric([name], figures["used"])
        if figures["slots"] is not None:
            slots.add_metric([name], figures["slots"])
    yield from (depth, oldest, slots, used)
    yield from _limit_families(gauges)
    for metric, help_, value in (
        ("holdbeat_workers", "Live workers that can run something.", gauges.workers),
        (
            "holdbeat_heartbeat_age_seconds",
            "Age of the last heartbeat of the worker that has been silent longest.",
            gauges.heartbeat_age_s,
        ),
        ("holdbeat_trigger_lag_seconds", "How far the trigger is behind.", gauges.trigger_lag_s),
        ("holdbeat_deliveries_pending", "Webhook deliveries on their way.", gauges.deliveries_pending),
    ):
        yield GaugeMetricFamily(metric, help_, value=value)
    for name, (metric, help_) in _STORE_COUNTERS.items():
        yield CounterMetricFamily(metric, help_, value=gauges.events[name])


def _limit_families(gauges: StoreGauges) -> Iterator[Metric]:
    slots = GaugeMetricFamily("holdbeat_limit_slots", "Slots that a limit gives.", labels=["limit"])
    used = GaugeMetricFamily("holdbeat_limit_used", "Slots of a limit that are held.", labels=["limit"])
    waiting = GaugeMetricFamily("holdbeat_limit_waiting", "Ready jobs that a limit covers.", labels=["limit"])
    throttled = GaugeMetricFamily("holdbeat_limit_throttled", "Partitions that are throttled.", labels=["limit"])
    for figures in gauges.limits:
        name = [figures.limit.name]
        if figures.limit.slots is not None:
            slots.add_metric(name, figures.limit.slots)
        used.add_metric(name, figures.used)
        waiting.add_metric(name, figures.waiting)
        throttled.add_metric(name, len(figures.throttled))
    yield from (slots, used, waiting, throttled)
    for metric, help_, index in (
        ("holdbeat_affinity_kept", "Starts for what the worker had loaded.", 0),
        ("holdbeat_affinity_switches", "Starts for something else than the worker had loaded.", 1),
    ):
        family = CounterMetricFamily(metric, help_, labels=["resource"])
        for resource, counts in gauges.affinities.items():
            family.add_metric([resource], counts[index])
        yield family


_STORE_COUNTERS = {
    events.LEASE_EXPIRED: ("holdbeat_lease_expiries", "Leases that ran out and were recovered, by any process."),
    events.STALE_RESULT: (
        "holdbeat_stale_results",
        "Results that came after the lease was gone, and were refused, of any process.",
    ),
    events.ZOMBIE_FOUND: (
        "holdbeat_zombies_recovered",
        "Runs whose worker was gone, ended by recovery in any process.",
    ),
    events.DUPLICATE_REFUSED: (
        "holdbeat_double_fires_refused",
        "Looks at a schedule that found a due time which had its verdict already, and did not fire it again.",
    ),
    events.CLOCK_JUMPED: (
        "holdbeat_clock_jumps",
        "Jumps of the wall clock, or skew against the database, seen by any process.",
    ),
}
"""Counters that the store keeps: the same whichever process is asked."""
