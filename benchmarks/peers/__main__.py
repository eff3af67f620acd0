"""Holdbeat beside other Python queues: `make bench-peers`, or `python -m benchmarks.peers`.

Every contestant is measured once a round, in an order that moves on by one from round to round; the figures are
medians over the rounds. All stores are durable. docs/benchmarks.md says what the rows are.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.contestants import HOLDBEAT_AND_RAW, PEERS, Contestant, RawContestant, Store
from benchmarks.peers.environments import NotRun
from benchmarks.peers.measure import FULL, QUICK, Extent, Outcome, measure, measure_raw
from benchmarks.peers.report import document, machine, text_of
from benchmarks.peers.servers import Servers
from benchmarks.slow_disk import add_option, slow_down
from benchmarks.timing import progress

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")


def run(contestants: Sequence[Contestant | RawContestant], extent: Extent) -> dict[str, Any]:
    """All rounds; what is known about them afterwards."""
    before = machine()
    with tempfile.TemporaryDirectory(prefix="holdbeat-peers-") as name, Servers(Path(name)) as servers:
        refuse_memory(Path(name))
        excluded = _prepare(contestants, servers)
        outcomes: dict[str, list[Outcome]] = {contestant.name: [] for contestant in contestants}
        try:
            for number in range(extent.rounds):
                _run_round(number, contestants, excluded, servers, extent, outcomes)
        except KeyboardInterrupt:
            progress("interrupted: the figures so far")
        versions = _versions([one for one in contestants if one.name not in excluded], servers)
    return document(outcomes, dataclasses.asdict(extent), versions, before)


def _run_round(
    number: int,
    contestants: Sequence[Contestant | RawContestant],
    excluded: Mapping[str, str],
    servers: Servers,
    extent: Extent,
    outcomes: Mapping[str, list[Outcome]],
) -> None:
    """Measures everyone once, and adds what came out."""
    shift = number % len(contestants)
    for contestant in [*contestants[shift:], *contestants[:shift]]:
        reason = excluded.get(contestant.name)
        outcome = Outcome(error=reason) if reason else _measured(contestant, servers, extent)
        outcomes[contestant.name].append(outcome)
        progress(f"round {number + 1} of {extent.rounds}: {contestant.name}: {_in_words(outcome)}")


def _prepare(contestants: Sequence[Contestant | RawContestant], servers: Servers) -> dict[str, str]:
    """Makes environments and starts what is needed before anything is timed; who cannot run, and why."""
    excluded = {}
    for contestant in contestants:
        if isinstance(contestant, RawContestant):
            continue
        try:
            if contestant.environment:
                progress(f"environment of {contestant.environment.package}")
                contestant.environment.ready()
            if contestant.store is Store.REDIS:
                servers.redis.start()
        except NotRun as reason:
            excluded[contestant.name] = f"not run: {reason}"
    return excluded


def _measured(contestant: Contestant | RawContestant, servers: Servers, extent: Extent) -> Outcome:
    if isinstance(contestant, RawContestant):
        return measure_raw(contestant, servers, extent)
    return measure(contestant, servers, extent)


def _in_words(outcome: Outcome) -> str:
    figures = ", ".join(f"{name} {value:,.4g}" for name, value in outcome.figures.items())
    return "; ".join(text for text in (figures, outcome.error) if text)


def _versions(contestants: Sequence[Contestant | RawContestant], servers: Servers) -> dict[str, Any]:
    versions: dict[str, Any] = {"PostgreSQL": servers.postgres_version()}
    for contestant in contestants:
        if contestant.store is Store.REDIS:
            versions["Redis"] = servers.redis.version()
        if isinstance(contestant, Contestant) and contestant.environment:
            versions[contestant.environment.package] = contestant.environment.versions()
    return versions


def refuse_memory(folder: Path) -> None:
    """A store in memory would make every commit free."""
    resolved = folder.resolve()
    mounts = (line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines())
    around = [(point, kind) for point, kind in mounts if resolved.is_relative_to(point)]
    if max(around, key=lambda mount: len(mount[0]))[1] in MEMORY_FILE_SYSTEMS:
        sys.exit(f"{folder} is in memory, where commits cost nothing: name a folder on a disk with --folder.")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer jobs and one round, for a first impression")
    parser.add_argument("--jobs", type=int, help="jobs of each contestant in each round")
    parser.add_argument("--rounds", type=int, help="how often each contestant is measured")
    parser.add_argument("--only", action="append", metavar="TEXT", help="only contestants whose name contains this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file too")
    parser.add_argument("--folder", help="where the stores are kept; must be on a disk")
    add_option(parser)
    options = parser.parse_args(argv)
    slow_down(options.flush_ms)
    extent = QUICK if options.quick else FULL
    changes = {name: value for name in ("jobs", "rounds") if (value := getattr(options, name))}
    contestants: list[Contestant | RawContestant] = [
        contestant
        for contestant in (*HOLDBEAT_AND_RAW, *PEERS)
        if not options.only or any(text.lower() in contestant.name.lower() for text in options.only)
    ]
    if not contestants:
        parser.error(f"no contestant's name contains {' or '.join(options.only)}")
    # Both end the run with the figures so far and leave no server behind, also if a shell started this in the
    # background, where Ctrl-C is ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    tempfile.tempdir = options.folder
    report = run(contestants, dataclasses.replace(extent, **changes))
    print(text_of(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
