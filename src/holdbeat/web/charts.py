"""Charts as geometry: numbers in, rectangles and points out; the templates draw them as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from holdbeat.domain.lease import HTTP_RESOURCE
from holdbeat.observe.wording import span as duration
from holdbeat.store.reads.timeline import Minute, Span

WIDTH, HEIGHT = 600, 120
OUTCOMES = ("COMPLETED", "SKIPPED", "FAILED")


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str


def throughput(minutes: Sequence[Minute]) -> dict[str, Any]:
    """Stacked bars: what ended in each minute, by outcome."""
    peak = max((sum(minute.ended.values()) for minute in minutes), default=0)
    top = nice(peak)
    step = WIDTH / max(1, len(minutes))
    bars = []
    for number, minute in enumerate(minutes):
        y = float(HEIGHT)
        said = ", ".join(f"{minute.ended[each]} {each.lower()}" for each in OUTCOMES if minute.ended.get(each))
        for outcome in OUTCOMES:
            amount = minute.ended.get(outcome, 0)
            if amount:
                height = max(2.0, amount / top * HEIGHT)
                y -= height
                title = f"{minute.at:%H:%M} UTC: {said}"
                bars.append(Bar(round(number * step + 0.75, 2), round(y, 2), round(step - 1.5, 2), round(height, 2),
                                outcome, title))  # fmt: skip
    return {"bars": bars, "top": top, "ticks": _ticks(minutes), "total": sum(sum(m.ended.values()) for m in minutes)}


def waits(minutes: Sequence[Minute]) -> dict[str, Any]:
    """For each minute the median wait as a bar and the longest of nine in ten above it."""
    rows = [(number, minute, sorted(minute.waits_s)) for number, minute in enumerate(minutes) if minute.waits_s]
    top = nice(max((quantile(values, 0.9) for _, _, values in rows), default=0))
    step = WIDTH / max(1, len(minutes))
    bars = []
    for number, minute, values in rows:
        title = f"{minute.at:%H:%M} UTC: half waited up to {duration(quantile(values, 0.5))}, nine in ten up to "
        title += duration(quantile(values, 0.9))
        for kind, share in (("p90", 0.9), ("p50", 0.5)):
            height = max(2.0, quantile(values, share) / top * HEIGHT)
            bars.append(Bar(round(number * step + 0.75, 2), round(HEIGHT - height, 2), round(step - 1.5, 2),
                            round(height, 2), kind, title))  # fmt: skip
    every = sorted(value for _, _, values in rows for value in values)
    return {
        "bars": bars,
        "top": top,
        "ticks": _ticks(minutes),
        "median": quantile(every, 0.5) if every else None,
        "p90": quantile(every, 0.9) if every else None,
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def nice(peak: float) -> float:
    """The end of an axis: a round number, not below the peak and not far above it."""
    if peak <= 0:
        return 1
    power = 10 ** math.floor(math.log10(peak))
    found = next(factor * power for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if factor * power >= peak)
    return int(found) if found == int(found) else round(found, 3)


def _ticks(minutes: Sequence[Minute]) -> list[dict[str, Any]]:
    step = WIDTH / max(1, len(minutes))
    return [
        {"x": round(number * step, 2), "label": f"{minute.at:%H:%M}"}
        for number, minute in enumerate(minutes)
        if minute.at.minute % 15 == 0
    ]


# --- the timeline -------------------------------------------------------------------------------------------

LANES_WIDTH = 1000


def lanes(spans: Sequence[Span], since: datetime, now: datetime) -> list[dict[str, Any]]:
    """Spans as bars: for each worker its slots, one lane each, nothing over anything else.

    The slot of a direct request is not kept once it has ended: it goes to the first lane of its kind that was free.
    """
    workers: dict[str, dict[int, list[Span]]] = {}
    loose: list[Span] = []
    for each in sorted(spans, key=lambda span: span.started_at):
        if each.slot is None:
            loose.append(each)
        else:
            workers.setdefault(each.worker_id, {}).setdefault(each.slot, []).append(each)
    for each in loose:
        slots = workers.setdefault(each.worker_id, {})
        is_http = each.resource == HTTP_RESOURCE
        fitting = sorted((s for s in slots if (s < 0) == is_http), key=abs)
        further = -len(fitting) - 1 if is_http else max(fitting, default=-1) + 1
        slot = next((s for s in fitting if _is_free(slots[s], each, now)), further)
        slots.setdefault(slot, []).append(each)
    length_s = (now - since).total_seconds()

    def x(at: datetime) -> float:
        return max(0.0, min(1.0, (at - since).total_seconds() / length_s)) * LANES_WIDTH

    drawn = []
    for worker_id in sorted(workers):
        rows = []
        for slot in sorted(workers[worker_id], key=lambda slot: (slot < 0, abs(slot))):
            bars = []
            for each in workers[worker_id][slot]:
                left, right = x(each.started_at), x(each.finished_at or now)
                took = duration(((each.finished_at or now) - each.started_at).total_seconds())
                what = "direct request" if each.is_direct else "run"
                word = (each.status or "running").lower() + (f" ({each.error_kind})" if each.error_kind else "")
                bars.append(
                    {
                        "x": round(left, 2),
                        "width": round(max(1.5, right - left - 0.8), 2),
                        "radius": round(min(4.0, max(1.5, right - left - 0.8) / 3), 2),
                        "span": each,
                        "kind": each.status or "RUNNING",
                        "title": f"{each.type} on {each.resource}: {what} {word}, {took} from "
                        f"{each.started_at:%H:%M:%S} UTC",
                        "label": each.type if right - left > 9 * len(each.type) + 16 else "",
                    }
                )
            rows.append({"name": slot_name(slot), "bars": bars})
        drawn.append({"worker_id": worker_id, "rows": rows})
    return drawn


def slot_name(slot: int) -> str:
    """A slot as people count: from one, and the lane for http apart."""
    return f"slot {slot + 1}" if slot >= 0 else f"http {-slot}"


def _is_free(lane: Sequence[Span], wanted: Span, now: datetime) -> bool:
    end = wanted.finished_at or now
    return all(each.started_at >= end or (each.finished_at or now) <= wanted.started_at for each in lane)


def time_ticks(since: datetime, now: datetime) -> list[dict[str, Any]]:
    """About six round instants of a stretch of time."""
    length_s = (now - since).total_seconds()
    step_s = next((s for s in (20, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400) if length_s / s <= 7), 21600)
    at = since.replace(minute=0, second=0, microsecond=0) if step_s >= 3600 else since.replace(second=0, microsecond=0)
    at -= timedelta(minutes=at.minute % max(1, step_s // 60)) if step_s < 3600 else timedelta(0)
    found = []
    while at <= now:
        if since + timedelta(seconds=length_s * 0.02) < at < now - timedelta(seconds=length_s * 0.02):
            found.append(
                {
                    "x": round((at - since).total_seconds() / length_s * LANES_WIDTH, 2),
                    "label": f"{at:%H:%M:%S}" if step_s < 60 else f"{at:%H:%M}",
                }
            )
        at += timedelta(seconds=step_s)
    return found
