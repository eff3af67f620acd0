"""Everything that a person should look at, what is worst first (ALR-01).

An item about a state (a failing schedule, a type without a worker) goes when the state is mended; one about operational
Events goes when it is marked as seen. Up to which Event they were seen is one number for each name, in `meta`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

from holdbeat.domain import events
from holdbeat.domain.attention import KEPT_DAYS, AttentionItem, advice_for, detail_of
from holdbeat.domain.errors import Invalid
from holdbeat.domain.webhook import OPERATIONAL_EVENTS, DeliveryStatus
from holdbeat.store import meta
from holdbeat.store.limits.starvation import known_starvation
from holdbeat.store.queue.pauses import list_pauses
from holdbeat.store.rare_events import tally
from holdbeat.store.reads.needs_attention import (
    FAILURES_READ,
    FailedJob,
    count_failing,
    failed_for_good,
    failing_schedules,
    fails_too_often,
    run_errors,
    troubled_schedules,
    unserved,
)
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.deliveries import FAILED_COUNTED, count_failed, list_deliveries

LATELY = timedelta(hours=24)
FAILURES_COUNTED = 500
"""So many permanent failures of the last day are counted; of more the item says that there are more."""
DELIVERIES_NAMED = 4
_SEEN = "attention.seen."


def read_attention(tx: Transaction) -> list[AttentionItem]:
    readers = (_paused, _open_reader, _unserved, _starved, _operational, _failed, _schedules, _deliveries)
    # A changed limit is usually intended, so failures come first.
    return sorted((item for read in readers for item in read(tx)), key=lambda item: item.kind == events.LIMIT_CHANGED)


def mark_seen(tx: Transaction, name: str | None = None) -> int:
    """Marks operational Events as seen, of one name or all that there are now; answers how many items that were."""
    if name is not None and name not in OPERATIONAL_EVENTS:
        raise Invalid(
            f"{name[:100]!r} is no operational event; there are {', '.join(OPERATIONAL_EVENTS)}.",
            code="unknown_choice",
            field="name",
        )
    items = [item for item in _operational(tx) if name is None or item.kind == name]
    for item in items:
        meta.put(tx, f"{_SEEN}{item.kind}", str(item.event_id))
    return len(items)


def _paused(tx: Transaction) -> Iterator[AttentionItem]:
    for pause in list_pauses(tx):
        subject = "The whole queue" if pause.resource is None else f"The resource {pause.resource}"
        by = f"by {pause.paused_by}" if pause.paused_by else ""
        detail = ": ".join(part for part in (by, pause.reason or "") if part) or None
        yield AttentionItem(
            "paused",
            f"{subject} is paused",
            "Resume it when the reason is over: holdbeat queue resume.",
            since=pause.paused_at,
            detail=detail,
            resource=pause.resource,
        )


def _open_reader(tx: Transaction) -> Iterator[AttentionItem]:
    reader = tx.open_reader()
    if reader is not None:
        yield AttentionItem("open_reader", "A transaction stays open", reader.remedy, detail=reader.detail)


def _unserved(tx: Transaction) -> Iterator[AttentionItem]:
    for entry in unserved(tx):
        yield AttentionItem(
            "no_worker",
            f"No worker for {entry.type}",
            "Start a worker with the App that has this type, for this resource.",
            count=entry.waiting,
            detail=f"{entry.waiting:,} {'job waits' if entry.waiting == 1 else 'jobs wait'}",
            type=entry.type,
            resource=entry.resource,
        )


def _starved(tx: Transaction) -> Iterator[AttentionItem]:
    for entry in known_starvation(tx):
        yield AttentionItem(
            "starved",
            f"Direct requests leave the queue no slot of {entry.limit}",
            "Set direct_burst to give waiting jobs a turn, or add slots.",
            since=entry.since,
            resource=entry.resource,
        )


def _operational(tx: Transaction) -> Iterator[AttentionItem]:
    since = tx.now - timedelta(days=KEPT_DAYS)
    for name in OPERATIONAL_EVENTS:
        counted = tally(tx, name, int(meta.get(tx, f"{_SEEN}{name}") or 0), since)
        if counted is None:
            continue
        advice = advice_for(name)
        yield AttentionItem(
            name,
            advice.text(counted.count),
            advice.advice,
            since=counted.first_at,
            last_at=counted.last_at,
            count=counted.count,
            detail=detail_of(json.loads(counted.last["data"] or "{}")),
            job_id=counted.last["job_id"],
            schedule_id=counted.last["schedule_id"],
            event_id=counted.last_id,
        )


def _failed(tx: Transaction) -> Iterator[AttentionItem]:
    by_type: dict[str, list[FailedJob]] = {}
    since = tx.now - LATELY
    for job in failed_for_good(tx, since, limit=FAILURES_COUNTED):
        by_type.setdefault(job.type, []).append(job)
    is_cut = fails_too_often(tx, since)
    more = "+" if is_cut or sum(map(len, by_type.values())) >= FAILURES_COUNTED else ""
    errors = run_errors(tx, [jobs[0].id for jobs in by_type.values()])
    for type_, jobs in by_type.items():
        is_one = len(jobs) == 1
        text = f"{jobs[0].title} failed permanently" if is_one else f"{len(jobs)}{more} {type_} jobs failed permanently"
        yield AttentionItem(
            "failed",
            text,
            "Read why with holdbeat explain, and retry when it is mended.",
            since=jobs[-1].finished_at,
            last_at=jobs[0].finished_at,
            count=len(jobs),
            detail=errors.get(jobs[0].id),
            job_id=jobs[0].id if is_one else None,
            type=type_,
        )
    if is_cut:
        yield AttentionItem(
            "failed",
            f"More than {FAILURES_READ:,} runs have failed since yesterday",
            "Mend what fails most often; holdbeat jobs --status FAILED lists them all.",
            detail="Jobs that failed permanently before these are not named here.",
            count=FAILURES_READ,
        )


def _schedules(tx: Transaction) -> Iterator[AttentionItem]:
    for schedule in troubled_schedules(tx):
        yield AttentionItem(
            "failing",
            f"{schedule.name} cannot be planned",
            "Edit it: the detail says what cannot be read.",
            detail=schedule.trouble,
            schedule_id=schedule.id,
            is_endpoint=schedule.endpoint is not None,
        )
    unnamed = count_failing(tx)
    for schedule in failing_schedules(tx):
        unnamed[schedule.endpoint is not None] -= 1
        yield AttentionItem(
            "failing",
            f"{schedule.name} is failing",
            "Look at its last run; reset-failures returns it to its pace at once.",
            last_at=schedule.last_run_at,
            count=schedule.failure_count,
            detail=f"{schedule.failure_count} {'failure' if schedule.failure_count == 1 else 'failures'} in a row",
            schedule_id=schedule.id,
            is_endpoint=schedule.endpoint is not None,
        )
    for is_endpoint, count in unnamed.items():
        if count > 0:
            singular, plural = ("endpoint", "endpoints") if is_endpoint else ("schedule", "schedules")
            yield AttentionItem(
                "failing",
                f"{count:,} more {f'{singular} is' if count == 1 else f'{plural} are'} failing",
                f"holdbeat {plural} list shows them all.",
                count=count,
                is_endpoint=is_endpoint,
            )


def _deliveries(tx: Transaction) -> Iterator[AttentionItem]:
    for delivery in list_deliveries(tx, status=DeliveryStatus.FAILED, limit=DELIVERIES_NAMED).items:
        yield AttentionItem(
            "delivery",
            f"{delivery.event} was not delivered",
            "Mend the receiver and send it again: holdbeat deliveries redeliver.",
            since=delivery.created_at,
            detail=delivery.last_error,
            job_id=delivery.job_id,
        )
    unnamed = count_failed(tx) - DELIVERIES_NAMED
    if unnamed > 0:
        more = "+" if unnamed + DELIVERIES_NAMED >= FAILED_COUNTED else ""
        yield AttentionItem(
            "delivery",
            f"{unnamed:,}{more} more {'message was' if unnamed == 1 else 'messages were'} not delivered",
            "holdbeat deliveries list --status FAILED lists them all.",
            count=unnamed,
        )
