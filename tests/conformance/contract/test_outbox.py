"""What is told to whom: exactly the messages of each end of a job, to subscriptions and to the job's own address."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.events import GROUP_FINISHED, JOB_CANCELLED
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import NewJob, RetryPolicy
from holdbeat.domain.run import ErrorKind
from holdbeat.domain.views import group_json, job_json, run_json
from holdbeat.domain.webhook import (
    JOB_PERMANENTLY_FAILED,
    RUN_COMPLETED,
    RUN_FAILED,
    RUN_SKIPPED,
    WEBHOOK_EVENTS,
)
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.webhooks.subscriptions import create_webhook, patch_webhook
from tests.conformance.acts import (
    cancel,
    change,
    claim_all,
    claim_one,
    complete,
    enqueue_one,
    fail,
    look,
    look_at_group,
    make_group,
    rows,
    skip,
)

OWN = "https://own.example/hook"
EVERYTHING = "https://everything.example/"

Act = Callable[[PersistenceAdapter, str], object]
"""Lets a job that waits come to an end."""


def ended(store: PersistenceAdapter, job_id: str) -> None:
    complete(store, claim_one(store))


def failed_whenever_tried(store: PersistenceAdapter, job_id: str) -> None:
    while claims := claim_all(store):
        for taken in claims:
            fail(store, taken)


def rejected(store: PersistenceAdapter, job_id: str) -> None:
    fail(store, claim_one(store), ErrorKind.REJECTED)


def interrupted(store: PersistenceAdapter, job_id: str) -> None:
    fail(store, claim_one(store), ErrorKind.INTERRUPTED)


def skipped(store: PersistenceAdapter, job_id: str) -> None:
    skip(store, claim_one(store))


def cancelled_before_its_run(store: PersistenceAdapter, job_id: str) -> None:
    cancel(store, job_id)


def cancelled_within_its_run(store: PersistenceAdapter, job_id: str) -> None:
    taken = claim_one(store)
    cancel(store, job_id)
    # Nobody is told of the end of a run whose job was cancelled: that was said already.
    complete(store, taken)


TOLD: list[tuple[Act, list[str], list[str]]] = [
    (ended, [RUN_COMPLETED], [RUN_COMPLETED]),
    (skipped, [RUN_SKIPPED], [RUN_SKIPPED]),
    (cancelled_before_its_run, [JOB_CANCELLED], [JOB_CANCELLED]),
    (cancelled_within_its_run, [JOB_CANCELLED], [JOB_CANCELLED]),
    (failed_whenever_tried, [RUN_FAILED], [RUN_FAILED, RUN_FAILED, JOB_PERMANENTLY_FAILED]),
    (rejected, [RUN_FAILED], [RUN_FAILED, JOB_PERMANENTLY_FAILED]),
    (interrupted, [RUN_FAILED], [RUN_FAILED]),
]
"""What happens; what is told of it where max_attempts is 0; and where it is 1."""


def deliveries(store: PersistenceAdapter) -> Counter[tuple[str, str]]:
    """Event and address of all that is on its way."""
    return Counter((event, url) for event, url in rows(store, "SELECT event, url FROM deliveries"))


def subscribe(store: PersistenceAdapter) -> None:
    """One subscription to everything, one to each event alone, and one that was switched off."""
    store.write_sync(create_webhook, EVERYTHING)
    off = store.write_sync(create_webhook, "https://off.example/")
    store.write_sync(patch_webhook, off.id, {"enabled": False})
    for event in WEBHOOK_EVENTS:
        store.write_sync(create_webhook, f"https://{event}.example/", [event])


def expected(events: list[str], own: str | None, is_followed: bool) -> Counter[tuple[str, str]]:
    """What should be on its way after these events."""
    counts = Counter((event, own) for event in events if own)
    if is_followed:
        counts.update((event, url) for event in events for url in (EVERYTHING, f"https://{event}.example/"))
    return counts


def clear(store: PersistenceAdapter) -> None:
    """Leaves neither a job that could be claimed nor a message."""
    for (job_id,) in rows(store, "SELECT id FROM jobs WHERE status = 'QUEUED'"):
        cancel(store, job_id)
    change(store, "DELETE FROM deliveries")


@pytest.mark.rule("WEB-01", "WEB-04", "DEC-009")
@pytest.mark.parametrize("max_attempts", [0, 1])
@pytest.mark.parametrize("is_followed", [False, True], ids=["alone", "followed"])
def test_each_end_of_a_job_is_told_once_to_everyone_who_wants_it_and_to_nobody_else(
    store: PersistenceAdapter, is_followed: bool, max_attempts: int
) -> None:
    if is_followed:
        subscribe(store)
    for act, without, with_retries in TOLD:
        events = with_retries if max_attempts else without
        for own in (None, OWN):
            job = enqueue_one(store, webhook_url=own, retry_policy=RetryPolicy(max_attempts, base_delay_s=0))
            act(store, job.id)
            assert deliveries(store) == expected(events, own, is_followed), (act.__name__, own)
            clear(store)


@pytest.mark.rule("WEB-01", "GRP-01")
@pytest.mark.parametrize("max_attempts", [0, 1])
@pytest.mark.parametrize("is_followed", [False, True], ids=["alone", "followed"])
def test_the_end_of_a_group_is_told_to_subscriptions_alone_and_once(
    store: PersistenceAdapter, is_followed: bool, max_attempts: int
) -> None:
    if is_followed:
        subscribe(store)
    for act, without, with_retries in TOLD:
        events = with_retries if max_attempts else without
        for own in (None, OWN):
            member = NewJob("noop", webhook_url=own, retry_policy=RetryPolicy(max_attempts, base_delay_s=0))
            group, (job,) = make_group(store, GroupMode.SEQUENTIAL, OnFailure.STOP, [member])
            assert not deliveries(store)
            act(store, job.id)
            expected_events = expected(events, own, is_followed)
            if look_at_group(store, group.id)[0].status.is_terminal:
                expected_events += expected([GROUP_FINISHED], None, is_followed)
            else:
                assert act is interrupted and max_attempts > 0
            assert deliveries(store) == expected_events, (act.__name__, own)
            clear(store)


@pytest.mark.rule("WEB-01", "DEC-012")
@pytest.mark.parametrize(
    ("on_failure", "rest"), [(OnFailure.STOP, JOB_CANCELLED), (OnFailure.SKIP, RUN_SKIPPED)], ids=["stop", "skip"]
)
def test_members_that_a_failure_takes_along_are_told_too(
    store: PersistenceAdapter, on_failure: OnFailure, rest: str
) -> None:
    subscribe(store)
    members = [NewJob("noop", webhook_url=OWN, retry_policy=RetryPolicy(0)) for _ in range(2)]
    make_group(store, GroupMode.SEQUENTIAL, on_failure, members)
    failed_whenever_tried(store, "")
    expected_events = expected([RUN_FAILED, rest], OWN, True) + expected([GROUP_FINISHED], None, True)
    assert deliveries(store) == expected_events


@pytest.mark.rule("WEB-01")
def test_a_message_says_what_the_api_shows(store: PersistenceAdapter, clock: ManualClock) -> None:
    store.write_sync(create_webhook, EVERYTHING)
    group, (made,) = make_group(store, GroupMode.PARALLEL, OnFailure.STOP, 1)
    clock.advance(1)
    ended(store, made.id)
    at = iso(clock.now())
    job = look(store, made.id)
    assert job.run is not None
    as_json_form = {event: as_json(payload) for event, payload in rows(store, "SELECT event, payload FROM deliveries")}
    of_job = {"job": job_json(job), "run": run_json(job.run, job.type)}
    of_group = {"group": group_json(*look_at_group(store, group.id))}
    assert as_json_form == {
        RUN_COMPLETED: {"type": RUN_COMPLETED, "timestamp": at, "data": of_job},
        GROUP_FINISHED: {"type": GROUP_FINISHED, "timestamp": at, "data": of_group},
    }


def as_json(kept: Any) -> Any:
    return json.loads(kept) if isinstance(kept, str) else kept
