"""Verbs about limits: list, set, reset."""

from __future__ import annotations

import re
from typing import Any

import click

from holdbeat.cli.arguments import without_none
from holdbeat.cli.backend import Backend
from holdbeat.cli.options import JSON, ListingGroup, example, printing, reaching
from holdbeat.cli.output import instant, rows_of, show, shown

_RATE = re.compile(r"(\d+)\s*/\s*(\d+(?:\.\d+)?)?\s*(s|m|h|d)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.group(
    cls=ListingGroup,
    epilog=example("holdbeat limits set gpu --slots 2", "holdbeat limits set api --resource http --rate 60/m"),
)
def limits() -> None:
    """How much work runs at once and how often it starts, over all workers."""


@limits.command("list", epilog=example("holdbeat limits list --watch"))
@printing(lambda page: [limits_table(page["items"])], is_watched=True)
def list_limits(backend: Backend) -> Any:
    """List the limits in force with the slots in use and the jobs that wait."""
    return backend.list_limits()


@limits.command("set", epilog=example("holdbeat limits set gpu --slots 2", "holdbeat limits set api --rate 60/m"))
@click.argument("name")
@click.option("--resource", help="Covers the work on this resource.")
@click.option("--type", help="Covers the work of this job type.")
@click.option("--everything", is_flag=True, help="For a new limit: covers all work.")
@click.option("--slots", type=click.IntRange(0), help="How many may run at once.")
@click.option("--rate", metavar="COUNT/TIME", help="How many may start in a period, e.g. 60/m or 5/10s.")
@click.option("--burst", type=click.IntRange(0), help="How many more may start early.")
@click.option("--per-partition/--whole", default=None, help="Count each partition by itself.")
@click.option("--fair/--in-order", default=None, help="Let partitions of one priority take turns.")
@click.option(
    "--weight",
    "weights",
    multiple=True,
    metavar="PARTITION=N",
    help="Starts of a partition in its turn; may be repeated.",
)
@printing(lambda limit: [limits_table([limit])])
def set_limit(
    backend: Backend,
    name: str,
    everything: bool,
    rate: str | None,
    burst: int | None,
    weights: tuple[str, ...],
    **options: Any,
) -> Any:
    """Set fields of the limit NAME; running workers follow it at once."""
    present = {limit["name"]: limit for limit in backend.list_limits()["items"]}.get(name)
    if present is None and not (options["resource"] or options["type"] or everything):
        raise click.UsageError(
            f"There is no limit {shown(name)} yet: say what it covers with --resource, --type or --everything, such as "
            f"--resource {shown(name)}."
        )
    changes = without_none(options)
    if weights:
        before = present["weights"] if present is not None else None
        changes["weights"] = {**(before or {}), **_weights(weights)}
    if rate is not None or burst is not None:
        changes["rate"] = _rate(rate, burst, present)
    if not changes:
        raise click.UsageError("Say what to set: --slots, --rate, --burst, --per-partition, --fair or --weight.")
    return backend.set_limit(name, changes)


@limits.command("reset", epilog=example("holdbeat limits reset gpu"))
@click.argument("name")
@JSON
@reaching
def reset_limit(backend: Backend, name: str, as_json: bool) -> None:
    """Reset the limit NAME to what the settings declare."""
    answer = backend.reset_limit(name)
    removed = f"{shown(name)} is removed: nothing declares it."
    show(answer, lambda left: [limits_table(left["items"]) if left["items"] else removed], as_json=as_json)


def _weights(words: tuple[str, ...]) -> dict[str, int]:
    """Weights from `PARTITION=N`."""
    weights = {}
    for word in words:
        partition, equals, number = word.rpartition("=")
        if not equals or not number.isdigit():
            raise click.UsageError(f"--weight {word!r} is no weight. Write it as PARTITION=3.")
        weights[partition] = int(number)
    return weights


def _rate(text: str | None, burst: int | None, known: Any) -> dict[str, Any]:
    """A rate from `60/m` or `5/10s`; the burst alone changes the rate that is there."""
    rate: dict[str, Any] = dict((known or {}).get("rate") or {})
    if text is not None:
        match = _RATE.fullmatch(text.strip())
        if match is None:
            raise click.UsageError(f"--rate {text!r} is no rate. Write it as 60/m, 5/10s or 1000/h.")
        count, amount, unit = match.groups()
        rate |= {"count": int(count), "per_s": float(amount or 1) * _UNITS[unit]}
    elif not rate:
        raise click.UsageError("--burst needs a --rate.")
    return rate if burst is None else {**rate, "burst": burst}


def limits_table(items: list[Any]) -> Any:
    """Limits with what they hold now."""
    return rows_of(
        items,
        (
            ("name", lambda limit: shown(limit["name"])),
            ("covers", _covers),
            ("slots", _slots),
            "used",
            ("rate", _rate_words),
            "waiting",
            ("next start", _next_start),
            ("by", "origin"),
        ),
    )


def _slots(limit: Any) -> str:
    return "–" if limit["slots"] is None else f"{limit['slots']}{' each' if limit['per_partition'] else ''}"


def _next_start(limit: Any) -> str:
    """When something may start again: the next start of the rate, and the ends of throttles."""
    throttled = [
        f"{shown(throttle['partition'] or 'no partition')} throttled until {instant(throttle['until'])}"
        for throttle in limit["throttled"][:3]
    ]
    more = [f"{len(limit['throttled']) - 3} more throttled"] if len(limit["throttled"]) > 3 else []
    return "; ".join([*([instant(limit["next_start_at"])] if limit["next_start_at"] else []), *throttled, *more])


def _covers(limit: Any) -> str:
    parts = [f"{key} {shown(limit[key])}" for key in ("resource", "type") if limit[key] is not None]
    covered = ", ".join(parts) or "everything"
    if not limit["fair"]:
        return covered
    weights = ", ".join(f"{shown(name)} ×{weight}" for name, weight in (limit["weights"] or {}).items())
    return f"{covered}, in turns ({weights})" if weights else f"{covered}, in turns"


def _rate_words(limit: Any) -> str:
    rate = limit["rate"]
    if rate is None:
        return "–"
    burst = f" +{rate['burst']}" if rate["burst"] else ""
    return f"{rate['count']} in {rate['per_s']:g} s{burst}{' each' if limit['per_partition'] else ''}"
