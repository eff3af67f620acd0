"""Many Events of one commit as one row of the log.

Three rows a job (queued, claimed, ended) were a fifth of what a job cost. So Events of these names that one commit
notes one after the other share a row: its ordinary columns hold what they have in common, `batch` holds the columns in
which they differ, `count` how many they are. Each Event keeps an id of its own: the row's id is that of its last Event,
and the others have the ids just before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from holdbeat.domain import events

_Row = tuple[Any, ...]

EVENT_COLUMNS = ("name", "at", "job_id", "run_id", "worker_id", "group_id", "schedule_id", "data")
BATCH_COLUMNS = (*EVENT_COLUMNS, "count", "batch")
_NAME, _JOB_ID, _DATA = 0, 2, 7

BATCH_MAX = 1000
"""Events of one row at the most. PostgreSQL's sequence of ids goes in steps of as many."""

INSTANTS = {events.JOB_QUEUED: "created_at", events.JOB_CLAIMED: "started_at", events.RUN_ENDED: "finished_at"}
"""The Events that share rows. Each happens once in a job's life, at an instant that the job or its run keeps, so that
the row can be found from the job."""


def packed(rows: Sequence[_Row]) -> Iterator[tuple[bool, list[_Row]]]:
    """The rows to insert for noted Events, in order: (True, [a row of BATCH_COLUMNS]) or (False, rows as they are)."""
    if len(rows) == 1:
        yield False, list(rows)
        return
    singles: list[_Row] = []
    for name, group in groupby(rows, key=itemgetter(_NAME)):
        same_name = iter(group)
        while chunk := list(islice(same_name, BATCH_MAX)):
            if len(chunk) == 1 or name not in INSTANTS:
                singles += chunk
                continue
            if singles:
                yield False, singles
                singles = []
            yield True, [_batch_row(chunk)]
    if singles:
        yield False, singles


def _batch_row(chunk: Sequence[_Row]) -> _Row:
    common: list[Any] = []
    varied: list[str] = []
    for number, values in enumerate(zip(*chunk, strict=True)):
        first = values[0]
        if number != _JOB_ID and values.count(first) == len(values):
            common.append(first)
            continue
        common.append(None)
        if number == _DATA:
            text = f"[{','.join([value or 'null' for value in values])}]"
        else:
            text = json.dumps(values, ensure_ascii=False)
        varied.append(f'"{EVENT_COLUMNS[number]}":{text}')
    return (*common, len(chunk), f"{{{','.join(varied)}}}")


def unpacked(event_id: int, row: Sequence[Any], count: int, batch: str | None) -> Iterator[tuple[int, Sequence[Any]]]:
    """The Events of one row of the log (its id, EVENT_COLUMNS, count, batch), each with its id; `data` is parsed."""
    shared = [*row[:_DATA], json.loads(row[_DATA]) if row[_DATA] else {}]
    if batch is None:
        yield event_id, shared
        return
    columns = [(EVENT_COLUMNS.index(name), values) for name, values in json.loads(batch).items()]
    for place in range(count):
        values = shared.copy()
        for number, varied in columns:
            values[number] = varied[place] if number != _DATA else varied[place] or {}
        yield event_id - count + 1 + place, values
