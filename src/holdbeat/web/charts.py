"""Charts as geometry: numbers in, rectangles and points out; the templates draw them as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from holdbeat.domain.clock import from_iso
from holdbeat.domain.lease import HTTP_RESOURCE
from holdbeat.domain.steps import Step
from holdbeat.observe.wording import span as duration
from holdbeat.store.reads.find_schedules import PastRun
from holdbeat.store.reads.timeline import Minute, Span

WIDTH, HEIGHT = 600, 120
RUN_TIMES_HEIGHT = 80
OUTCOMES = ("COMPLETED", "SKIPPED", "FAILED")


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str


def throughput(minutes: Sequence[Minute], zone: ZoneInfo) -> dict[str, Any]:
    """Stacked bars: what ended in each minute, by outcome."""
    peak = max((sum(minute.ended.values()) for minute in minutes), default=0)
    top = nice(peak)
    step = WIDTH / max(1, len(minutes))
    bars = []
    for number, minute in enumerate(minutes):
        y = float(HEIGHT)
        counts = ", ".join(
            f"{minute.ended[status]} {status.lower()}" for status in OUTCOMES if minute.ended.get(status)
        )
        for outcome in OUTCOMES:
            amount = minute.ended.get(outcome, 0)
            if amount:
                height = max(2.0, amount / top * HEIGHT)
                y -= height
                title = f"{minute.at.astimezone(zone):%H:%M}: {counts}"
                bars.append(Bar(round(number * step + 0.75, 2), round(y, 2), round(step - 1.5, 2), round(height, 2),
                                outcome, title))  # fmt: skip
    return {
        "bars": bars,
        "top": top,
        "ticks": _ticks(minutes, zone),
        "total": sum(sum(m.ended.values()) for m in minutes),
    }


def waits(minutes: Sequence[Minute], zone: ZoneInfo) -> dict[str, Any]:
    """The waits of each minute: the median as a bar and the 90th percentile above it."""
    rows = [(number, minute, sorted(minute.waits_s)) for number, minute in enumerate(minutes) if minute.waits_s]
    top = nice(max((quantile(values, 0.9) for _, _, values in rows), default=0))
    step = WIDTH / max(1, len(minutes))
    bars = []
    for number, minute, values in rows:
        p50, p90 = duration(quantile(values, 0.5)), duration(quantile(values, 0.9))
        title = f"{minute.at.astimezone(zone):%H:%M}: p50 {p50}, p90 {p90}"
        for kind, share in (("p90", 0.9), ("p50", 0.5)):
            height = max(2.0, quantile(values, share) / top * HEIGHT)
            bars.append(Bar(round(number * step + 0.75, 2), round(HEIGHT - height, 2), round(step - 1.5, 2),
                            round(height, 2), kind, title))  # fmt: skip
    every = sorted(value for _, _, values in rows for value in values)
    return {
        "bars": bars,
        "top": top,
        "ticks": _ticks(minutes, zone),
        "median": quantile(every, 0.5) if every else None,
        "p90": quantile(every, 0.9) if every else None,
    }


def from_first_data(minutes: Sequence[Minute]) -> Sequence[Minute]:
    """The minutes from the first one with data on, but not fewer than a quarter of an hour."""
    first = next((number for number, minute in enumerate(minutes) if minute.ended), len(minutes))
    return minutes[min(first, max(0, len(minutes) - 15)) :]


def run_times(runs: Sequence[PastRun], zone: ZoneInfo) -> dict[str, Any]:
    """A bar for each of the last runs, the newest at the right edge: how long it took, and how it ended."""
    ended = [run for run in runs if run.started_at is not None and run.finished_at is not None]
    took = [(run.finished_at - run.started_at).total_seconds() for run in ended if run.finished_at and run.started_at]
    top = nice(max(took, default=0))
    step = min(14.0, WIDTH / max(1, len(ended)))
    first = WIDTH - step * len(ended)
    bars = []
    for number, (run, took_s) in enumerate(zip(ended, took, strict=True)):
        tall = max(2.0, took_s / top * RUN_TIMES_HEIGHT)
        at = f"{run.finished_at.astimezone(zone):%H:%M:%S}" if run.finished_at else ""
        title = f"{at}: {run.status.lower()} after {duration(took_s)}"
        x, y = round(first + number * step + 1, 2), round(RUN_TIMES_HEIGHT - tall, 2)
        bars.append(Bar(x, y, round(step - 2, 2), round(tall, 2), run.status, title))
    return {"bars": bars, "top": top}


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def nice(peak: float) -> float:
    """The end of an axis: a round number, not below the peak and not far above it."""
    if peak <= 0:
        return 1
    power = 10 ** math.floor(math.log10(peak))
    bound = next(factor * power for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if factor * power >= peak)
    return int(bound) if bound == int(bound) else round(bound, 3)


def _ticks(minutes: Sequence[Minute], zone: ZoneInfo) -> list[dict[str, Any]]:
    step = WIDTH / max(1, len(minutes))
    return [
        {"x": round(number * step, 2), "label": f"{minute.at.astimezone(zone):%H:%M}"}
        for number, minute in enumerate(minutes)
        if minute.at.minute % (15 if len(minutes) > 30 else 5) == 0
    ]


def step_bars(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """The steps of a chain as bars over the time from the start of the first to the end of the last, in percent."""
    if not steps:
        return []
    began = min(step.started_at for step in steps)
    length_s = max((step.started_at - began).total_seconds() + step.duration_s for step in steps) or 1.0
    return [
        {
            "name": step.name,
            "x": round((step.started_at - began).total_seconds() / length_s * 100, 2),
            "width": round(max(0.5, step.duration_s / length_s * 100), 2),
            "took": duration(step.duration_s),
            "started_at": step.started_at,
            "size": step.size,
            "run_id": step.run_id,
        }
        for step in steps
    ]


def member_bars(runs: Mapping[int, Mapping[str, Any] | None], now: datetime) -> dict[int, dict[str, float]]:
    """The last run of each member of a group as a bar over the time of all of them, in percent."""
    spans = {
        sequence: (from_iso(run["started_at"]), from_iso(run["finished_at"]) if run["finished_at"] else now)
        for sequence, run in runs.items()
        if run is not None
    }
    if not spans:
        return {}
    began = min(start for start, _ in spans.values())
    length_s = max((end - began).total_seconds() for _, end in spans.values()) or 1.0
    bars = {}
    for sequence, (start, end) in spans.items():
        x = min(99.0, (start - began).total_seconds() / length_s * 100)
        width = min(100 - x, max(1.0, (end - start).total_seconds() / length_s * 100))
        bars[sequence] = {"x": round(x, 2), "width": round(width, 2)}
    return bars


# --- the timeline -------------------------------------------------------------------------------------------

LANES_WIDTH = 1000
LANE_HEIGHT, DENSE_HEIGHT = 30, 9
DENSE_FROM = 17
"""So many lanes of one resource or worker are drawn narrow, and only every tenth has its name."""


def lanes(
    spans: Sequence[Span], since: datetime, now: datetime, zone: ZoneInfo, *, by_worker: bool = False
) -> list[dict[str, Any]]:
    """Spans as bars in lanes of a resource or a worker's slots; an ended direct request goes to the first free lane."""
    groups: dict[str, list[list[Span]]] = {}
    names: dict[str, list[str]] = {}
    # Spans with a slot of their own come first, so that the others find what is left free.
    for span in sorted(spans, key=lambda span: (by_worker and span.slot is None, span.started_at)):
        group = (span.worker_id or "programs") if by_worker else span.resource
        rows, titles = groups.setdefault(group, []), names.setdefault(group, [])
        if by_worker and span.slot is not None:
            name = slot_name(span.slot)
            place = titles.index(name) if name in titles else None
        else:
            kind = ("http" if span.resource == HTTP_RESOURCE else "slot") if by_worker else ""
            same = [number for number, title in enumerate(titles) if title.startswith(kind)]
            place = next((number for number in same if _is_free(rows[number], span, now)), None)
            name = f"{kind} {len(same) + 1}".strip()
        if place is None:
            place = len(rows)
            rows.append([])
            titles.append(name)
        rows[place].append(span)
    length_s = (now - since).total_seconds()

    def x(at: datetime) -> float:
        return max(0.0, min(1.0, (at - since).total_seconds() / length_s)) * LANES_WIDTH

    drawn = []
    for group in sorted(groups):
        titles = names[group]
        order = sorted(range(len(titles)), key=lambda i: (titles[i].startswith("http"), int(titles[i].split()[-1])))
        is_dense = len(titles) >= DENSE_FROM
        drawn.append(
            {
                "name": group,
                "height": DENSE_HEIGHT if is_dense else LANE_HEIGHT,
                "rows": [
                    {
                        "name": "" if is_dense and number % 10 else titles[i],
                        "bars": [_lane_bar(span, x, now, zone) for span in groups[group][i]],
                    }
                    for number, i in enumerate(order)
                ],
            }
        )
    return drawn


def _lane_bar(span: Span, x: Callable[[datetime], float], now: datetime, zone: ZoneInfo) -> dict[str, Any]:
    left, right = x(span.started_at), x(span.finished_at or now)
    width = max(1.5, right - left - 0.8)
    took = duration(((span.finished_at or now) - span.started_at).total_seconds())
    kind = "reservation" if span.is_direct else "run"
    status = (span.status or "running").lower() + (f" ({span.error_kind})" if span.error_kind else "")
    room = int((right - left - 14) / 6.5)
    label = span.title if len(span.title) <= room else f"{span.title[: room - 1]}…" if room > 6 else ""
    return {
        "x": round(left, 2),
        "width": round(width, 2),
        "radius": round(min(4.0, width / 3), 2),
        "span": span,
        "kind": span.status or "RUNNING",
        "title": f"{span.title} ({span.type} on {span.resource}): {kind} {status}, {took} from "
        f"{span.started_at.astimezone(zone):%H:%M:%S}, {span.worker_id or 'held by a program'}",
        "label": label,
    }


def slot_name(slot: int) -> str:
    """A slot as people count: from one, and the lane for http apart."""
    return f"slot {slot + 1}" if slot >= 0 else f"http {-slot}"


def _is_free(lane: Sequence[Span], span: Span, now: datetime) -> bool:
    end = span.finished_at or now
    return all(placed.started_at >= end or (placed.finished_at or now) <= span.started_at for placed in lane)


def time_ticks(since: datetime, now: datetime, zone: ZoneInfo) -> list[dict[str, Any]]:
    """About six round instants of a stretch of time."""
    length_s = (now - since).total_seconds()
    step_s = next(
        (s for s in (1, 2, 5, 10, 20, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400) if length_s / s <= 7), 21600
    )
    at = since.replace(minute=0, second=0, microsecond=0) if step_s >= 3600 else since.replace(second=0, microsecond=0)
    at -= timedelta(minutes=at.minute % max(1, step_s // 60)) if step_s < 3600 else timedelta(0)
    ticks = []
    while at <= now:
        if since + timedelta(seconds=length_s * 0.02) < at < now - timedelta(seconds=length_s * 0.02):
            ticks.append(
                {
                    "x": round((at - since).total_seconds() / length_s * LANES_WIDTH, 2),
                    "label": at.astimezone(zone).strftime("%H:%M:%S" if step_s < 60 else "%H:%M"),
                }
            )
        at += timedelta(seconds=step_s)
    return ticks
