"""Checks about durable work: steps, sleeps, signals, children, dependencies, unique keys and expiry."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator

from holdbeat.torture.checker.history import History, Row, Violation
from holdbeat.torture.checker.limits import Interval, intervals

ROUNDING_S = 0.003
CLOCKS_S = 0.05
"""How far the store's clock and the handlers' may be apart over a sleep of some seconds."""


def steps_are_kept(history: History) -> Iterator[Violation]:
    """A step that some attempt has passed has one value for all attempts, and no later attempt calls its function."""
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    passed: dict[tuple[str, str], float] = {}
    for row in history.steps_seen:
        if row["what"] == "passed":
            key = row["chain"], row["step"]
            values[key].add(row["value"])
            passed[key] = min(passed.get(key, math.inf), row["monotonic"])
    stored = {(row["root_id"], row["name"]): row["value"] for row in history.steps}
    for (chain, step), seen in sorted(values.items()):
        if len(seen) > 1:
            yield Violation("step", chain, f"the step {step!r} of {chain} had several values: {sorted(seen)}")
        if chain in history.job and stored.get((chain, step)) not in seen:
            yield Violation(
                "step", chain, f"the step {step!r} of {chain} was passed, and its value is not in the store"
            )
    began = {row["run"]: row["monotonic"] for row in history.starts}
    calls = [row for row in history.steps_seen if row["what"] == "called"]
    for (run, step), count in Counter((row["run"], row["step"]) for row in calls).items():
        if count > 1:
            yield Violation("step", run, f"the run {run} called its step {step!r} {count} times")
    for row in calls:
        if began.get(row["run"], -math.inf) > passed.get((row["chain"], row["step"]), math.inf):
            sentence = (
                f"the step {row['step']!r} of {row['chain']} was passed, and the later run {row['run']} called it"
            )
            yield Violation("step", row["chain"], sentence)


def sleeps_last(history: History) -> Iterator[Violation]:
    """A sleep is over no sooner than its duration after a handler first came to it."""
    if not history.wall_is_steady:
        return
    begun: dict[str, float] = {}
    for row in history.sleeps_seen:
        if row["what"] == "begun":
            begun[row["chain"]] = min(begun.get(row["chain"], math.inf), row["monotonic"])
    for row in history.sleeps_seen:
        slept = row["monotonic"] - begun.get(row["chain"], -math.inf)
        if row["what"] == "over" and slept < row["seconds"] - CLOCKS_S:
            sentence = f"the chain {row['chain']} slept {slept:.3f} s instead of {row['seconds']:.3f}"
            yield Violation("sleep", row["chain"], sentence)


def signals_arrive_once(history: History) -> Iterator[Violation]:
    """Each wait has one outcome in all attempts; a signal ends one wait at most, and no wait misses one."""
    sent: dict[str, list[Row]] = defaultdict(list)
    for row in history.signals_sent:
        sent[row["chain"]].append(row)
    waits: dict[str, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in history.waits_seen:
        waits[row["chain"]][row["number"]].append(row)
    for chain, by_number in waits.items():
        yield from _waits_of(history, chain, by_number, sent[chain])


def _waits_of(history: History, chain: str, waits: dict[int, list[Row]], sent: list[Row]) -> Iterator[Violation]:
    answered = {row["payload"]: row["monotonic"] for row in sent if row["is_answered"]}
    order = list(answered)
    taken: list[str] = []
    for number, rows in sorted(waits.items()):
        outcomes = {row["payload"] if row["what"] == "got" else None for row in rows if row["what"] != "begun"}
        if len(outcomes) > 1:
            yield Violation("signal", chain, f"wait {number} of {chain} had several outcomes: {outcomes}")
        for payload in outcomes - {None}:
            if payload not in {row["payload"] for row in sent}:
                yield Violation("signal", chain, f"wait {number} of {chain} got {payload!r}, which nobody sent")
            if payload in taken:
                yield Violation("signal", chain, f"the signal {payload!r} ended two waits of {chain}")
        if None in outcomes:
            since = min(row["monotonic"] for row in rows if row["what"] == "begun")
            # A signal that was answered before the wait was over would have ended it.
            until = since + (rows[0]["timeout_s"] - CLOCKS_S if history.wall_is_steady else 0.0)
            missed = [payload for payload, at in answered.items() if at < until and payload not in taken]
            if missed:
                yield Violation("signal", chain, f"wait {number} of {chain} timed out, and {missed[0]!r} was there")
        taken += [payload for payload in outcomes if payload is not None]
    ordered = [order.index(payload) for payload in taken if payload in answered]
    if ordered != sorted(ordered):
        yield Violation("signal", chain, f"the signals of {chain} were taken in the order {taken}, sent as {order}")


def children_are_made_once(history: History) -> Iterator[Violation]:
    """A chain that asks for one child has one in all its attempts, and goes on when that has COMPLETED."""
    children: dict[str, list[Row]] = defaultdict(list)
    for job in history.jobs:
        if job["parent_id"] is not None and job["retry_of"] is None:
            children[_root(history, job["parent_id"])].append(job)
    for chain, made in children.items():
        if len(made) > 1:
            yield Violation("child", chain, f"the chain {chain} has {len(made)} children instead of one")
    for row in history.children_seen:
        ends = {_tip(history, child)["status"] for child in children.get(row["chain"], [])}
        if row["chain"] in history.job and "COMPLETED" not in ends:
            yield Violation("child", row["chain"], f"the chain {row['chain']} got the result of a child that is {ends}")


def upstreams_end_first(history: History) -> Iterator[Violation]:
    """No job executes before all attempts of what it waits for have ended; one whose upstream did not complete ends as
    it was told to."""
    stretches: dict[str, list[Interval]] = defaultdict(list)
    for stretch in intervals(history):
        if stretch.job is not None:
            stretches[stretch.job].append(stretch)
    for row in history.dependencies:
        job = history.job.get(row["job"])
        if job is None:
            continue
        first = min((one.since for of in _chain(history, job) for one in stretches[of["id"]]), default=math.inf)
        for upstream_id in row["after"]:
            upstream = history.job.get(upstream_id)
            if upstream is None:
                continue
            for one in (one for of in _chain(history, upstream) for one in stretches[of["id"]] if one.until > first):
                sentence = f"job {job['id']} executed before run {one.run} of job {upstream_id} had ended"
                yield Violation("upstream", job["id"], sentence)
            status = _tip(history, upstream)["status"]
            asked = row["on_upstream"]
            allowed = {"cancel": {"CANCELLED"}, "skip": {"SKIPPED", "CANCELLED"}}.get(asked)
            if status != "COMPLETED" and allowed is not None and job["status"] not in allowed:
                sentence = f"job {job['id']} is {job['status']}, its upstream {upstream_id} {status}, asked to {asked}"
                yield Violation("upstream", job["id"], sentence)


def unique_keys_exclude(history: History) -> Iterator[Violation]:
    """Of the chains with one unique key no two execute at the same time, unless one of them was cancelled."""
    keys = {
        job["id"]: job["unique_key"]
        for job in history.jobs
        if job["unique_key"] is not None and job["unique_while"] == "unfinished" and job["status"] != "CANCELLED"
    }
    by_key: dict[str, list[Interval]] = defaultdict(list)
    for stretch in intervals(history):
        if stretch.job in keys:
            by_key[keys[stretch.job]].append(stretch)
    for key, stretches in by_key.items():
        last: Interval | None = None
        for stretch in sorted(stretches, key=lambda one: (one.since, one.until)):
            if last is not None and stretch.since < last.until and stretch.job != last.job:
                sentence = f"the jobs {last.job} and {stretch.job} with the unique key {key} executed at the same time"
                yield Violation("unique", key, sentence)
            if last is None or stretch.until > last.until:
                last = stretch


def nothing_starts_expired(history: History) -> Iterator[Violation]:
    """No job starts for the first time after it has expired, by the clock of the store."""
    for job in history.jobs:
        run = history.run_of.get(job["id"])
        if job["expires_at"] is None or job["retry_of"] is not None or run is None or not run["fence"]:
            continue
        late = run["started_at"] - job["expires_at"]
        if late > ROUNDING_S:
            yield Violation("expiry", job["id"], f"job {job['id']} began {late:.3f} s after it had expired")


def _chain(history: History, job: Row) -> Iterator[Row]:
    """The job, and the automatic retries and continuations behind it."""
    at: Row | None = job
    while at is not None:
        yield at
        at = history.job.get(at["retried_by"]) if at["retried_by"] else None


def _tip(history: History, job: Row) -> Row:
    *_, tip = _chain(history, job)
    return tip


def _root(history: History, job_id: str) -> str:
    """The first job of the chain of a job, manual retries included."""
    job = history.job.get(job_id)
    while job is not None and job["retry_of"] is not None:
        job_id = job["retry_of"]
        job = history.job.get(job_id)
    return job_id
