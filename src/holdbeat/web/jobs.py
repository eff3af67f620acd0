"""What the pages about work read: the queue, jobs, groups, direct requests."""

from __future__ import annotations

from typing import Any

from holdbeat.domain.group import GroupStatus
from holdbeat.domain.job import JobStatus
from holdbeat.domain.views import delivery_json, event_json, group_json, job_json, reservation_json
from holdbeat.observe.explain import explain_job
from holdbeat.observe.explain_reservation import explain_reservation
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.queue.groups import group_name, load_group, member_counts
from holdbeat.store.queue.job_types import list_types
from holdbeat.store.queue.pauses import list_pauses
from holdbeat.store.queue.templates import find_template
from holdbeat.store.reads.event_log import events_of_job
from holdbeat.store.reads.find_jobs import NEWEST, find_jobs
from holdbeat.store.reads.jobs import load_job, load_jobs
from holdbeat.store.reads.list_jobs import list_groups, list_jobs
from holdbeat.store.reads.pagination import Page
from holdbeat.store.reads.queue_view import queue
from holdbeat.store.reads.stats import resource_stats
from holdbeat.store.running.reservations import list_reservations, waiting_line
from holdbeat.store.running.run_output import list_artifacts
from holdbeat.store.schedules.schedules import find_schedule
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.deliveries import list_deliveries
from holdbeat.web.forms import offered_types
from holdbeat.web.request import Ask

JOB_FILTERS = ("status", "type", "resource", "schedule_id", "group_id", "template_id", "label")
SHOWN_MEMBERS = 500
LINE_SHOWN = 20
"""So many waiting direct requests are explained; each explanation costs a look at the slots."""


def read_queue(tx: Transaction, ask: Ask) -> dict[str, Any]:
    resource = ask.text("resource")
    page = queue(tx, resource, limit=100, cursor=ask.text("cursor"))
    pauses = {each.resource: each for each in list_pauses(tx)}
    figures = resource_stats(tx)
    for name in pauses:
        if name is not None and name not in figures:
            figures[name] = {"slots": None, "used": 0, "waiting": 0, "oldest_wait_s": None}
    return {
        "resource": resource,
        "entries": [{"job": job_json(entry.job), "blocked_by": list(entry.blocked_by)} for entry in page.items],
        "next_cursor": page.next_cursor,
        "pauses": pauses,
        "resources": figures,
        "direct": [reservation_json(each) for each in waiting_line(tx)[:20]],
    }


def read_jobs(tx: Transaction, ask: Ask) -> dict[str, Any]:
    part = ask.text("id")
    filters = {} if part else ask.filters(*JOB_FILTERS)
    page = Page(find_jobs(tx, part), None) if part else list_jobs(tx, filters, limit=50, cursor=ask.text("cursor"))
    types = list_types(tx)
    resources = {each.defaults.get("resource", "default") for each in types}
    resources |= limits_in_force(tx).resources
    return {
        "filters": filters,
        "part": part,
        "newest": NEWEST,
        "jobs": [job_json(job) for job in page.items],
        "next_cursor": page.next_cursor,
        "statuses": list(JobStatus),
        "types": [each.name for each in types],
        "resources": sorted(resources | {filters.get("resource", "default")}),
    }


def read_job(tx: Transaction, ask: Ask) -> dict[str, Any]:
    job = load_job(tx, ask.id("job"))
    explanation = explain_job(tx, job.id)
    links = next((each["jobs"] for each in explanation["reasons"] if each["code"] == "chain"), None)
    chain = [job_json(each) for each in load_jobs(tx, [link["job_id"] for link in links])] if links else [job_json(job)]
    schedule = find_schedule(tx, job.schedule_id) if job.schedule_id else None
    template = find_template(tx, job.template_id) if job.template_id else None
    status = job.status
    return {
        "title": f"{job.type} {job.id[-8:]}",
        "job": job_json(job),
        "chain": chain,
        "explanation": explanation,
        "artifacts": list_artifacts(tx, job.run.id) if job.run else [],
        "events": [event_json(each.event) for each in events_of_job(tx, job.id, 200)],
        "deliveries": [delivery_json(each) for each in list_deliveries(tx, job_id=job.id, limit=20).items],
        "group_name": (group_name(tx, job.group_id) or "unnamed group") if job.group_id else None,
        "schedule": schedule,
        "template": template,
        "can_cancel": not status.is_terminal or (status is JobStatus.FAILED and job.retried_by is not None),
        "can_retry": status in (JobStatus.FAILED, JobStatus.SKIPPED)
        or (status is JobStatus.CANCELLED and (job.run is None or job.run.status is not None)),
    }


def read_groups(tx: Transaction, ask: Ask) -> dict[str, Any]:
    filters = ask.filters("status", "name")
    page = list_groups(tx, filters, limit=50, cursor=ask.text("cursor"))
    return {
        "filters": filters,
        "groups": page.items,
        "states": member_counts(tx, [group.id for group in page.items]),
        "next_cursor": page.next_cursor,
        "statuses": list(GroupStatus),
    }


def read_group(tx: Transaction, ask: Ask) -> dict[str, Any]:
    group, jobs = load_group(tx, ask.id("group"))
    chains: dict[int, list[dict[str, Any]]] = {}
    for job in jobs[:SHOWN_MEMBERS]:
        chains.setdefault(job.sequence or 0, []).append(job_json(job))
    return {
        "title": group.name or "Group",
        "group": {**group_json(group, []), "is_terminal": group.status.is_terminal},
        "chains": chains,
        "is_cut": len(jobs) > SHOWN_MEMBERS,
    }


def read_direct(tx: Transaction, ask: Ask) -> dict[str, Any]:
    line, waiting = direct_line(tx, LINE_SHOWN)
    return {
        "types": offered_types(tx),
        "chosen": ask.text("type"),
        "line": line,
        "in_line": waiting,
        "recent": [reservation_json(each) for each in list_reservations(tx, limit=20).items if not each.waits],
        "direct_wait_s": ask.service.settings.direct_wait_s,
    }


def direct_line(tx: Transaction, most: int) -> tuple[list[dict[str, Any]], int]:
    """The direct requests that wait, the first in line first, each with why and until when; and how many there are."""
    waiting = waiting_line(tx)
    return [{**reservation_json(each), "why": explain_reservation(tx, each.id)} for each in waiting[:most]], len(
        waiting
    )
