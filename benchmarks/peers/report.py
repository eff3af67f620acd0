"""Medians, the table for people, and the ratios with their targets."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.peers import contestants as who
from benchmarks.peers.contestants import Contestant, RawContestant
from benchmarks.peers.measure import Outcome
from benchmarks.slow_disk import flush_delay_ms

COLUMNS: Mapping[str, tuple[str, int]] = {
    "one_per_s": ("one by one /s", 0),
    "callers_per_s": ("64 callers /s", 0),
    "bulk_per_s": ("bulk /s", 0),
    "drain_per_s": ("drain /s", 0),
    "life_per_s": ("life /s", 0),
    "start_p50_ms": ("start p50 ms", 1),
    "start_p99_ms": ("p99 ms", 1),
    "cpu_us_per_job": ("CPU us/job", 0),
    "rss_mb": ("RSS MB", 0),
    "idle_cpu_percent": ("idle CPU %", 2),
}
"""Figures, what they are called in the table, and how many digits they have there."""

Medians = Mapping[str, Mapping[str, float]]


def medians(outcomes: Mapping[str, Sequence[Outcome]]) -> dict[str, dict[str, float]]:
    """By contestant and figure, over the rounds in which there was one."""
    table: dict[str, dict[str, float]] = {}
    for name, rounds in outcomes.items():
        table[name] = {}
        for figure in COLUMNS:
            values = [outcome.figures[figure] for outcome in rounds if figure in outcome.figures]
            if values:
                table[name][figure] = statistics.median(values)
    return table


@dataclass(frozen=True, slots=True)
class Ratio:
    """One line of what is to be reached."""

    name: str
    value: float | None
    """None: it was not measured in this run."""
    target: str
    holds: bool | None


def ratios(table: Medians) -> list[Ratio]:
    """The lines that say whether Holdbeat is as fast as it is meant to be."""

    def figure(contestant: Contestant | RawContestant, name: str) -> float | None:
        return table.get(contestant.name, {}).get(name)

    def drain(contestant: Contestant) -> float | None:
        return figure(contestant, "drain_per_s")

    sqlite, postgres = who.HOLDBEAT_SQLITE, who.HOLDBEAT_POSTGRES
    single = _quotient(figure(postgres, "one_per_s"), figure(who.RAW_POSTGRES, "one_per_s"))
    peer_single = figure(who.PGQUEUER_200, "one_per_s")
    own_single = figure(postgres, "one_per_s")
    lines = [
        _at_least("PostgreSQL drain / PgQueuer at batch 200", _quotient(drain(postgres), drain(who.PGQUEUER_200)), 1.2),
        _at_least("SQLite drain / Huey fsync", _quotient(drain(sqlite), drain(who.HUEY)), 5),
        _at_least(
            "single enqueue, SQLite / raw single commits",
            _quotient(figure(sqlite, "one_per_s"), figure(who.RAW_SQLITE, "one_per_s")),
            0.7,
        ),
        _judged(
            "single enqueue, PostgreSQL / raw single commits",
            single,
            ">= 0.5, and above PgQueuer's" + (f" {peer_single:,.0f}/s" if peer_single else ""),
            lambda value: value >= 0.5 and (peer_single is None or own_single is None or own_single > peer_single),
        ),
        _at_least(
            "bulk enqueue, PostgreSQL / PgQueuer's",
            _quotient(figure(postgres, "bulk_per_s"), figure(who.PGQUEUER_200, "bulk_per_s")),
            1,
        ),
    ]
    for contestant, raw, more in ((sqlite, who.RAW_SQLITE, 1.0), (postgres, who.RAW_POSTGRES, 2.0)):
        commits = figure(raw, "one_per_s")
        limit = 2_000 / commits + more if commits else None
        lines.append(
            _at_most(
                f"submit -> start p50 from another process, {contestant.store}, ms",
                figure(contestant, "start_p50_ms") if limit else None,
                limit,
                f"2 x one raw commit + {more:g} ms",
            )
        )
    for contestant, quiet in ((sqlite, who.QUIET_SQLITE), (postgres, who.QUIET_POSTGRES)):
        kept = _quotient(drain(contestant), drain(quiet))
        cost = None if kept is None else 1 - kept
        lines.append(_at_most(f"cost of the default log in drain, {contestant.store}", cost, 0.1))
    lines.append(_at_most("CPU per job claim -> settle, PostgreSQL, us", figure(postgres, "cpu_us_per_job"), 190))
    cores = os.cpu_count() or 1
    lines.append(
        _at_least(
            f"two worker processes / one, PostgreSQL ({cores} cores)",
            _quotient(drain(who.TWO_WORKERS), drain(postgres)),
            1.5,
        )
    )
    lines.append(Ratio("POST /api/jobs / an empty route", None, ">= 0.8; measured by make bench-api", None))
    return lines


def _quotient(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def _judged(name: str, value: float | None, target: str, holds: Callable[[float], bool]) -> Ratio:
    return Ratio(name, None if value is None else round(value, 3), target, None if value is None else holds(value))


def _at_least(name: str, value: float | None, target: float) -> Ratio:
    return _judged(name, value, f">= {target:g}", lambda reached: reached >= target)


def _at_most(name: str, value: float | None, target: float | None, meaning: str = "") -> Ratio:
    if target is None:
        return Ratio(name, None, f"<= {meaning}", None)
    text = f"<= {target:.3g}" + (f" ({meaning})" if meaning else "")
    return _judged(name, value, text, lambda reached: reached <= target)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cores": os.cpu_count(),
        "cpu": model,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "flush_delay_ms": flush_delay_ms(),
    }


def document(
    outcomes: Mapping[str, Sequence[Outcome]],
    settings: Mapping[str, Any],
    versions: Mapping[str, Any],
    before: Mapping[str, Any],
) -> dict[str, Any]:
    """All that is known about a run."""
    table = medians(outcomes)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {**before, "load_average_after": machine()["load_average"]},
        "versions": {"holdbeat": metadata.version("holdbeat"), **versions},
        "settings": dict(settings),
        "contestants": {
            name: {
                "medians": {figure: round(value, 3) for figure, value in table[name].items()},
                "rounds": [outcome.figures for outcome in rounds],
                "errors": [outcome.error for outcome in rounds if outcome.error],
            }
            for name, rounds in outcomes.items()
        },
        "ratios": [asdict(ratio) for ratio in ratios(table)],
    }


def text_of(report: Mapping[str, Any]) -> str:
    """The table and the ratios, for people."""
    titles = ["", *(title for title, _ in COLUMNS.values())]
    rows = []
    notes = []
    for name, entry in report["contestants"].items():
        cells = [
            f"{entry['medians'][figure]:,.{digits}f}" if figure in entry["medians"] else "-"
            for figure, (_, digits) in COLUMNS.items()
        ]
        rows.append([name, *cells])
        for reason in sorted(set(entry["errors"])):
            notes.append(f"{name}: {reason} ({entry['errors'].count(reason)} of {len(entry['rounds'])} rounds)")
    widths = [max(len(row[column]) for row in [titles, *rows]) for column in range(len(titles))]
    lines = [_aligned(row, widths) for row in [titles, *rows]]
    about = report["machine"]
    rounds = [entry["rounds"] for entry in report["contestants"].values()]
    settings = report["settings"]
    head = [
        f"{report['date']}, {about['cores']} cores ({about['cpu']}), Linux {about['kernel']}, "
        f"Python {about['python']}, load {about['load_average'][0]} before and {about['load_average_after'][0]} after",
        ", ".join(f"{name} {_version(version)}" for name, version in report["versions"].items()),
        f"{settings['jobs']:,} jobs, medians of {max(map(len, rounds))} interleaved rounds"
        + (f", every flush to disk {about['flush_delay_ms']:g} ms longer" if about["flush_delay_ms"] else ""),
        "",
    ]
    return "\n".join([*head, *lines, *([""] if notes else []), *notes, "", *_ratio_lines(report["ratios"])])


def _version(version: Any) -> str:
    return f"{version['version']} (Python {version['python']})" if isinstance(version, dict) else str(version)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
    return "  ".join([row[0].ljust(widths[0]), *numbers]).rstrip()


def _ratio_lines(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    width = max(len(line["name"]) for line in lines)
    words = {True: "holds", False: "does not hold", None: "not measured"}
    return ["to reach".ljust(width) + "     value  target"] + [
        f"{line['name'].ljust(width)}  {'-' if line['value'] is None else format(line['value'], '.3g'):>8}  "
        f"{line['target']}: {words[line['holds']]}"
        for line in lines
    ]
