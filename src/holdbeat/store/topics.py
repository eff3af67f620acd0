"""Topics of wake-ups: what a commit may have changed for a waiting process.

A wake-up is a hint without content, so every subscriber also polls. `tx.wake(...)` names the topics of a transaction;
after its commit they reach the listeners of this process and, by the engine's own means, those of other processes.
"""

from __future__ import annotations

from enum import StrEnum


class Topic(StrEnum):
    """Each name is written as it is into PostgreSQL's notifications and SQLite's datagrams."""

    READY = "ready"
    """A job or a direct request may be claimable now: enqueued, moved, resumed, or its gate opened. Where a claim waits
    for the transaction that stores a new job, this may be told just before its commit."""
    DELAYED = "delayed"
    """A job was stored that becomes ready at a later time: the next alarm may be earlier than thought."""
    SLOTS = "slots"
    """A lease has ended: its slot and its share of the limits are free."""
    CANCEL = "cancel"
    """Running work is to end: a job or a granted direct request was cancelled."""
    PREEMPT = "preempt"
    """A job or a direct request that may preempt others waits."""
    DIRECT = "direct"
    """A direct request changed: granted, released, expired or cancelled."""
    EVENTS = "events"
    """Rows were appended to the event log."""
    LOGS = "logs"
    """Log lines of a run were stored."""
    PROGRESS = "progress"
    """The progress of a run was stored."""
    SCHEDULES = "schedules"
    """A schedule's next due time may have changed."""
    DELIVERIES = "deliveries"
    """A webhook delivery is due, or its subscription changed."""
    WORKERS = "workers"
    """A worker was registered, is stopping, or has stopped."""
    JOB_TYPES = "job_types"
    """The catalogue of job types changed."""
    API_KEYS = "api_keys"
    """An API key was created or revoked."""
    RECONNECTED = "reconnected"
    """The connection for notifications was lost and is back: any other topic may have been missed."""
    REFUSED = "refused"
    """The store refuses all further work in this process."""
