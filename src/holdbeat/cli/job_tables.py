"""How jobs, runs and what belongs to them look in tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdbeat.cli.output import Drawn, Table, at, fields, instant, rows_of, shown, table


def jobs_table(jobs: Sequence[Mapping[str, Any]]) -> Table:
    return rows_of(
        jobs,
        (
            "id",
            "status",
            "type",
            ("title", _title),
            "priority",
            "resource",
            "attempt",
            ("created", at("created_at")),
            ("finished", at("finished_at")),
            ("note", _note),
        ),
        leaves=("attempt", "finished", "resource", "priority", "title", "created"),
    )


def _title(job: Mapping[str, Any]) -> str:
    """The title of a job, cut to the room of a column; empty where it only repeats the type."""
    title = str(job["title"])
    return "" if title == job["type"] else title if len(title) <= 40 else f"{title[:39]}…"


def progress_of(job: Mapping[str, Any]) -> str:
    """The last report of the handler: a percentage, a message or both, or else the step in which it is."""
    reported = job["progress"]
    if reported is None:
        return f"in {_open_steps(job)}" if job["open_steps"] else ""
    amount = "" if reported["fraction"] is None else f"{reported['fraction']:.0%}"
    return f"{amount} {shown(reported['message'])}".strip()


def _open_steps(job: Mapping[str, Any]) -> str:
    """The steps in which its handler is, and since when."""
    return ", ".join(f"{shown(step['name'])} since {instant(step['started_at'])}" for step in job["open_steps"])


def _wait(wait: Mapping[str, Any]) -> str:
    subject = wait.get("name") or wait.get("job_id") or wait.get("question_id") or ""
    until = f"until {instant(wait['until'])}" if wait["until"] else ""
    return " ".join(part for part in (wait["kind"], shown(subject), until) if part)


def _upstream(edge: Mapping[str, Any]) -> str:
    name = f"{shown(edge['as'])}: " if edge["as"] else ""
    return f"{name}{edge['job_id'] or edge['group_id']} {edge['outcome'] or '(not over)'}"


def _child(job: Mapping[str, Any]) -> str:
    return f"{job['id']} {shown(job['type'])} {job['status']}"


def _first_few(texts: Iterable[str]) -> str:
    # Imported where it is needed: it brings the store with it, which a command over HTTP does without.
    from holdbeat.observe.wording import listed

    return listed(texts)


def _waits(waits: Sequence[Mapping[str, Any]]) -> str:
    """The first few waits, the rest as a number."""
    return _first_few(map(_wait, waits))


def wait_line(job: Mapping[str, Any]) -> str:
    """What the chain of a job waits for, if it does not only sleep."""
    waits = job["waits"]
    return _waits(waits) if any(wait["kind"] != "sleep" for wait in waits) else ""


def _note(job: Mapping[str, Any]) -> str:
    """The one thing that a reader of a list would ask next."""
    run = job["run"]
    if job["status"] == "RUNNING" and (job["progress"] is not None or job["open_steps"]):
        return progress_of(job)
    if job["status"] == "CANCELLED":
        return shown(job["cancel_reason"])
    if run is not None and run["error"]:
        first = str(run["error"]).strip().partition("\n")[0]
        return f"{run['error_kind'] or ''} {shown(first)[:80]}".strip()
    if waits := wait_line(job):
        return f"waits for {waits}"
    if job["status"] == "QUEUED" and job["not_before"]:
        return f"not before {instant(job['not_before'])}"
    return ""


def job_fields(job: Mapping[str, Any]) -> Drawn:
    run = job["run"] or {}
    hidden = ("run", "position", "retry_policy", "progress", "open_steps", "permanently_failed", "waits")
    lines = {name: value for name, value in job.items() if name not in hidden}
    if not job["is_detached"]:
        del lines["is_detached"]
    if job["permanently_failed"]:
        lines["permanently_failed"] = True
    if job["waits"]:
        lines["waits_for"] = ", ".join(map(_wait, job["waits"]))
    if newest := job.get("newest"):
        parts = [f"{newest['id']} {newest['status']}"]
        if newest["waits"]:
            parts.append(f"waits for {line}" if (line := wait_line(newest)) else _waits(newest["waits"]))
        lines["newest"] = ", ".join(parts)
    if job.get("after"):
        lines["after"] = _first_few(map(_upstream, job["after"]))
    if job.get("children"):
        lines["children"] = _first_few(map(_child, job["children"]))
    if job["open_steps"]:
        lines["open_steps"] = _open_steps(job)
    if job["progress"] is not None:
        lines["progress"] = progress_of(job)
    for name in ("id", "exit_code", "error_kind", "error", "result"):
        if run.get(name) is not None:
            lines[f"run {name}"] = run[name]
    artifacts = sorted(name for name in run.get("artifacts") or {} if name != "result")
    if artifacts:
        lines["artifacts"] = ", ".join(artifacts)
    return fields(lines)


def pause_line(pause: Mapping[str, Any], time: str) -> str:
    """A line for a pause: its subject, the time in words such as "for 3 min", and the reason."""
    subject = "Everything" if pause["resource"] is None else f"The resource {shown(pause['resource'])}"
    return f"{subject} is paused {time}" + (f": {shown(pause['reason'])}" if pause["reason"] else "")


def pause_lines(pauses: Sequence[Mapping[str, Any]]) -> list[Drawn]:
    return [pause_line(pause, f"since {instant(pause['paused_at'])}") for pause in pauses]


def _blocked_by(job: Mapping[str, Any]) -> str:
    """What keeps a waiting job back; of a chain, what its handler waits for."""
    waits = job["waits"]
    return ", ".join(_waits(waits) if waits and code == "waiting" else str(code) for code in job["blocked_by"])


def queue_table(queue: Mapping[str, Any]) -> list[Drawn]:
    rows = [
        (
            number,
            job["id"],
            job["type"],
            _title(job),
            job["priority"],
            job["resource"],
            instant(job["created_at"]),
            _blocked_by(job),
        )
        for number, job in enumerate(queue["items"], 1)
    ]
    return [
        *pause_lines(queue["paused"]),
        table(("", "id", "type", "title", "priority", "resource", "created", "waits for"), rows),
    ]


def explanation(answer: Mapping[str, Any]) -> list[Drawn]:
    drawn: list[Drawn] = [shown(answer["summary"])]
    drawn += [f"  - {shown(reason['detail'])} [{shown(reason['code'])}]" for reason in answer.get("reasons", [])]
    if answer.get("estimated_start"):
        drawn.append(f"Estimated start: {instant(answer['estimated_start'])}")
    return drawn
