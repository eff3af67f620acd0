"""Reads for the pages about work: jobs, groups, direct requests."""

from __future__ import annotations

import json
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.group import GroupStatus
from holdbeat.domain.job import Job, JobStatus
from holdbeat.domain.redaction import REDACTED
from holdbeat.domain.views import delivery_json, event_json, group_json, job_json, question_json, reservation_json
from holdbeat.observe.explain import explain_job
from holdbeat.observe.explain_reservation import explain_reservation, reservation_with_estimate
from holdbeat.store.durable.steps import list_steps
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.queue.groups import group_name, load_group, member_counts
from holdbeat.store.queue.job_types import list_types
from holdbeat.store.queue.templates import find_template
from holdbeat.store.reads.event_log import events_of_job
from holdbeat.store.reads.find_jobs import COUNTED, NEWEST, counts_by_status, search_jobs
from holdbeat.store.reads.graph import graph_of
from holdbeat.store.reads.jobs import load_job, load_jobs
from holdbeat.store.reads.list_jobs import list_groups, list_jobs
from holdbeat.store.reads.names import titles_of
from holdbeat.store.reads.pagination import LIMIT_MAX, Page
from holdbeat.store.reads.questions import open_questions
from holdbeat.store.running.reservations import list_reservations, waiting_line
from holdbeat.store.running.run_output import list_artifacts
from holdbeat.store.schedules.schedules import find_schedule
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.deliveries import list_deliveries
from holdbeat.web.charts import member_bars, step_bars
from holdbeat.web.event_sentences import sentences
from holdbeat.web.forms import offered_types
from holdbeat.web.graph import DRAWN_MAX, drawn_graph
from holdbeat.web.queue import wait_text, waits_for_others
from holdbeat.web.rendering import ids_told
from holdbeat.web.request import LONGEST, PageRequest

JOB_FILTERS = (
    "status", "type", "resource", "schedule_id", "group_id", "template_id", "parent_id", "label", "priority",
)  # fmt: skip
SHOWN_MEMBERS = 500
CHILDREN_SHOWN = 50
LINE_SHOWN = 20
"""So many waiting direct requests are explained; each explanation costs a look at the slots."""


def read_jobs(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    text = request.text("q") or request.text("id")
    filters = request.filters(*JOB_FILTERS)
    refusal = None
    try:
        page = _jobs(tx, request, text, filters)
    except Invalid as error:
        # A filter that cannot be understood is said where it can be mended, above the whole list.
        refusal, filters = error.detail, {}
        page = _jobs(tx, request, text, filters)
    types = list_types(tx)
    resources = {job_type.defaults.get("resource", "default") for job_type in types}
    resources |= limits_in_force(tx).resources
    return {
        "filters": filters,
        "text": text,
        "refusal": refusal,
        "newest": NEWEST,
        "counted": COUNTED,
        "jobs": [job_json(job) for job in page.items],
        "next_cursor": page.next_cursor,
        "counts": counts_by_status(tx),
        "types": [job_type.name for job_type in types],
        "resources": sorted(resources | {filters.get("resource", "default")}),
        "schedule": find_schedule(tx, filters["schedule_id"]) if "schedule_id" in filters else None,
    }


def _jobs(tx: Transaction, request: PageRequest, text: str | None, filters: dict[str, Any]) -> Page[Job]:
    if text:
        return search_jobs(tx, text, filters, limit=50, cursor=request.text("cursor"))
    order = "oldest" if request.text("order") == "oldest" else "newest"
    return list_jobs(tx, filters, limit=50, cursor=request.text("cursor"), order=order)


def read_job(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    job = load_job(tx, request.id("job"))
    explanation = explain_job(tx, job.id)
    links = next((reason["jobs"] for reason in explanation["reasons"] if reason["code"] == "chain"), None)
    jobs = load_jobs(tx, [link["job_id"] for link in links]) if links else [job]
    schedule = find_schedule(tx, job.schedule_id) if job.schedule_id else None
    template = find_template(tx, job.template_id) if job.template_id else None
    status = job.status
    view = job_json(job)
    children = list_jobs(tx, {"parent_id": job.chain_id}, limit=CHILDREN_SHOWN, only_tips=True)
    events = [event_json(logged.event) for logged in events_of_job(tx, job.id, 200)]
    return {
        "title": view["title"],
        "job": view,
        "chain": [job_json(job) for job in jobs],
        "waits": {job.id: wait_text(waits) for job in jobs if waits_for_others(waits := job.current_waits)},
        "explanation": explanation,
        "titles": told_titles(tx, explanation),
        # What the sentence on top says already is not said again.
        "more": [reason for reason in explanation["reasons"][1:] if reason["detail"] not in explanation["summary"]],
        "steps": step_bars(list_steps(tx, job.chain_id)),
        "questions": [question_json(question) for question in open_questions(tx, job.chain_id, limit=LIMIT_MAX).items],
        "children": [job_json(child) for child in children.items],
        "are_children_cut": children.next_cursor is not None,
        "graph": drawn_graph(graph_of(tx, job.id, DRAWN_MAX)),
        "artifacts": list_artifacts(tx, job.run.id) if job.run else [],
        "events": sentences(tx, events, own_job_id=job.id),
        "deliveries": [delivery_json(item) for item in list_deliveries(tx, job_id=job.id, limit=20).items],
        "group_name": (group_name(tx, job.group_id) or "unnamed group") if job.group_id else None,
        "schedule": schedule,
        "template": template,
        # A chain that has ended cannot be cancelled any more, whichever of its jobs one looks at.
        "can_cancel": not jobs[-1].status.is_terminal if job in jobs else not status.is_terminal,
        "can_retry": status in (JobStatus.FAILED, JobStatus.SKIPPED)
        or (status is JobStatus.CANCELLED and (job.run is None or job.run.status is not None)),
        "again": _again(view) if status is JobStatus.COMPLETED else None,
    }


def _again(job: dict[str, Any]) -> dict[str, Any] | None:
    """The request for the same job once more; none where its params hold something that is not shown."""
    if REDACTED in str(job["params"]):
        return None
    names = ("type", "params", "priority", "resource", "timeout_s", "labels", "title", "retry_policy")
    return {name: job[name] for name in names if job[name] is not None}


def read_groups(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    filters = request.filters("status", "name")
    page = list_groups(tx, filters, limit=50, cursor=request.text("cursor"))
    states = {id_: _in_order(counts) for id_, counts in member_counts(tx, [group.id for group in page.items]).items()}
    return {
        "filters": filters,
        "groups": page.items,
        "states": states,
        "ended": {
            id_: sum(count for status, count in counts.items() if JobStatus(status).is_terminal)
            for id_, counts in states.items()
        },
        "next_cursor": page.next_cursor,
        "statuses": list(GroupStatus),
    }


def _in_order(counts: dict[str, int]) -> dict[str, int]:
    """Orders ended jobs first, then running, then waiting ones: the order of a bar that fills up."""
    order = ("COMPLETED", "SKIPPED", "CANCELLED", "FAILED", "RUNNING", "CONTINUED", "QUEUED")
    return {status: counts[status] for status in order if status in counts}


def read_group(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    group, jobs = load_group(tx, request.id("group"))
    chains: dict[int, list[dict[str, Any]]] = {}
    for job in jobs[:SHOWN_MEMBERS]:
        chains.setdefault(job.sequence or 0, []).append(job_json(job))
    then = load_jobs(tx, [group.then_job_id]) if group.then_job_id else []
    return {
        "title": group.name or "Group",
        "then": then[0] if then else None,
        "attempts": {n: sum(job["status"] != "CONTINUED" for job in chain) for n, chain in chains.items()},
        "waits": {n: wait_text(chain[-1]["waits"]) for n, chain in chains.items() if chain[-1]["waits"]},
        "group": {**group_json(group, []), "is_terminal": group.status.is_terminal},
        "chains": chains,
        "bars": member_bars({sequence: chain[-1]["run"] for sequence, chain in chains.items()}, tx.now),
        "failed": sum(1 for chain in chains.values() if chain[-1]["status"] == "FAILED"),
        "done": sum(1 for chain in chains.values() if chain[-1]["finished_at"]),
        "is_cut": len(jobs) > SHOWN_MEMBERS,
    }


def read_direct(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    line, waiting = direct_line(tx, LINE_SHOWN)
    return {
        "types": offered_types(tx),
        "chosen": request.text("type"),
        "params": _params_again(request.text("params")),
        "line": line,
        "in_line": waiting,
        "recent": [reservation_json(item) for item in list_reservations(tx, limit=20).items if not item.waits],
        "direct_wait_s": request.context.settings.direct_wait_s,
    }


def _params_again(text: str | None) -> str | None:
    """The params in the address of the page, for the form; None if they are no JSON object."""
    try:
        params = json.loads(text) if text else None
    except ValueError:
        return None
    return json.dumps(params, indent=2) if isinstance(params, dict) else None


def _params_link(params: Any) -> str | None:
    """The params of a request as the address of the form carries them; None if they are secret or too long for one."""
    text = json.dumps(params, separators=(",", ":"))
    return text if isinstance(params, dict) and REDACTED not in text and len(text) <= LONGEST else None


def read_reservation(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    reservation = reservation_with_estimate(tx, request.id("reservation"))
    why = explain_reservation(tx, reservation["id"])
    return {
        "title": reservation["title"],
        "reservation": reservation,
        "again": _params_link(reservation["params"]),
        "why": why,
        "titles": told_titles(tx, why),
    }


def direct_line(tx: Transaction, most: int) -> tuple[list[dict[str, Any]], int]:
    """The direct requests that wait, the first in line first, each with why and until when; and how many there are."""
    waiting = waiting_line(tx)
    line = []
    for reservation in waiting[:most]:
        why = explain_reservation(tx, reservation.id)
        line.append({**reservation_json(reservation), "why": why, "titles": told_titles(tx, why)})
    return line, len(waiting)


def told_titles(tx: Transaction, explanation: dict[str, Any]) -> dict[str | None, str]:
    """The titles of the jobs and direct requests that an explanation names."""
    return titles_of(tx, ids_told([explanation["summary"], *(reason["detail"] for reason in explanation["reasons"])]))
