"""Names of jobs, schedules and groups, for lists that would otherwise show ids."""

from __future__ import annotations

from collections.abc import Iterable

from holdbeat.store.reads.find_jobs import find_jobs, like
from holdbeat.store.transaction import Transaction

MOST = 500


def job_titles(tx: Transaction, ids: Iterable[str | None]) -> dict[str | None, str]:
    return _names(tx, "SELECT id, title, type FROM jobs WHERE id IN :ids", ids)


def titles_of(tx: Transaction, ids: Iterable[str | None]) -> dict[str | None, str]:
    """The titles of jobs and of direct requests."""
    distinct = list(ids)
    requests = "SELECT id, title, type FROM direct_reservations WHERE id IN :ids"
    return {**job_titles(tx, distinct), **_names(tx, requests, distinct)}


def schedule_names(tx: Transaction, ids: Iterable[str | None]) -> dict[str | None, str]:
    return _names(tx, "SELECT id, name, name FROM schedules WHERE id IN :ids", ids)


def group_names(tx: Transaction, ids: Iterable[str | None]) -> dict[str | None, str]:
    return _names(tx, "SELECT id, coalesce(name, ''), 'group' FROM job_groups WHERE id IN :ids", ids)


def ids_called(tx: Transaction, text: str) -> set[str | None]:
    """The ids of the jobs and schedules that a text finds."""
    rows = tx.rows(
        "SELECT id FROM schedules WHERE lower(name) LIKE :like ESCAPE '!' LIMIT :most", like=like(text), most=MOST
    )
    return {*(job.id for job in find_jobs(tx, text)), *(row[0] for row in rows)}


def _names(tx: Transaction, query: str, ids: Iterable[str | None]) -> dict[str | None, str]:
    distinct = sorted({id_ for id_ in ids if id_ is not None})
    return {row[0]: row[1] or row[2] for row in tx.rows(query, ids=distinct)} if distinct else {}
