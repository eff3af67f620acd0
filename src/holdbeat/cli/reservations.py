"""Verbs about reservations: list, show, cancel them, and borrow a slot."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from holdbeat.cli.arguments import DURATION
from holdbeat.cli.backend import Backend
from holdbeat.cli.options import CURSOR, JSON, LIMIT, WATCH, ListingGroup, example, reaching
from holdbeat.cli.output import Drawn, fields, instant, show, show_list, shown, table
from holdbeat.cli.slot_command import run_with_slot

TTL = click.option(
    "--ttl",
    "ttl_s",
    type=DURATION,
    default="60s",
    show_default=True,
    help="How long it is held without being extended.",
)
WAIT = click.option("--wait-timeout", "wait_s", type=DURATION, help="Wait no longer than this for a slot.")
STATUSES = ("ACTIVE", "RELEASED", "EXPIRED")


@click.group(
    cls=ListingGroup,
    epilog=example("holdbeat reservations --status ACTIVE", "holdbeat explain RESERVATION"),
)
def reservations() -> None:
    """Direct requests, borrowed slots and requests through gates: waiting, with a slot, and ended."""


@reservations.command("list", epilog=example("holdbeat reservations list --status ACTIVE --watch"))
@click.option("--status", type=click.Choice(STATUSES, case_sensitive=False), help="Only this status.")
@LIMIT
@CURSOR
@WATCH
@JSON
@reaching
def list_reservations(backend: Backend, watch: float | None, as_json: bool, **filters: Any) -> None:
    """List reservations, the newest first."""
    show_list(
        lambda: backend.list_reservations(**filters),
        lambda page: [reservations_table(page["items"])],
        as_json=as_json,
        watch=watch,
    )


@reservations.command("show", epilog=example("holdbeat reservations show RESERVATION"))
@click.argument("reservation_id", metavar="RESERVATION")
@WATCH
@JSON
@reaching
def show_reservation(backend: Backend, reservation_id: str, watch: float | None, as_json: bool) -> None:
    """Show a reservation: how it stands, or how it ended."""
    show_list(
        lambda: dict(backend.get_reservation(reservation_id)),
        lambda reservation: [fields(reservation)],
        as_json=as_json,
        watch=watch,
    )


@reservations.command("cancel", epilog=example("holdbeat reservations cancel RESERVATION --reason 'too late'"))
@click.argument("reservation_id", metavar="RESERVATION")
@click.option("--reason", help="Why; whoever waits for it is told.")
@JSON
@reaching
def cancel(backend: Backend, reservation_id: str, reason: str | None, as_json: bool) -> None:
    """Cancel a reservation, whether it waits or has its slot."""
    cancelled = backend.cancel_reservation(reservation_id, reason)
    show(
        cancelled,
        lambda reservation: [f"{reservation['id']} {reservation['outcome'] or reservation['status']}"],
        as_json=as_json,
    )


@reservations.command("take", epilog=example("holdbeat reservations take gpu --ttl 10m --json"))
@click.argument("resource")
@TTL
@WAIT
@JSON
@reaching
def take(backend: Backend, resource: str, ttl_s: float, wait_s: float | None, as_json: bool) -> None:
    """Borrow the next free slot of RESOURCE for work of your own, ahead of the queue. Extend it, then release it."""
    slot = backend.reserve_slot(resource, ttl_s=ttl_s, wait_s=wait_s)
    show(
        slot,
        lambda taken: [
            f"{taken['id']} holds a slot of {shown(taken['resource'])} until {instant(taken['expires_at'])}"
        ],
        as_json=as_json,
    )


@reservations.command("extend", epilog=example("holdbeat reservations extend RESERVATION --ttl 10m"))
@click.argument("reservation_id", metavar="RESERVATION")
@click.option("--ttl", "ttl_s", type=DURATION, help="For how long from now. [default: as long again as before]")
@JSON
@reaching
def extend(backend: Backend, reservation_id: str, ttl_s: float | None, as_json: bool) -> None:
    """Hold a borrowed slot for longer."""
    extended = backend.extend_reservation(reservation_id, ttl_s)
    show(extended, lambda one: [f"{one['id']} is held until {instant(one['expires_at'])}"], as_json=as_json)


@reservations.command("release", epilog=example("holdbeat reservations release RESERVATION"))
@click.argument("reservation_id", metavar="RESERVATION")
@JSON
@reaching
def release(backend: Backend, reservation_id: str, as_json: bool) -> None:
    """Give a borrowed slot back."""
    released = backend.release_reservation(reservation_id)
    show(released, lambda one: [f"{one['id']} {one['outcome'] or one['status']}"], as_json=as_json)


@click.command(
    epilog=example(
        "holdbeat slot gpu -- python train.py", "holdbeat slot ollama --wait-timeout 5m -- ollama run qwen3 hi"
    ),
)
@click.argument("resource")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@TTL
@WAIT
@reaching
def slot(backend: Backend, resource: str, command: tuple[str, ...], ttl_s: float, wait_s: float | None) -> None:
    """Run a COMMAND while holding a slot of RESOURCE, taken ahead of the queue.

    The command finds HOLDBEAT_SLOT (the number of the slot) and HOLDBEAT_FENCE in its environment. Its exit code is
    that of this command. If the slot is lost while it runs, it is told to end (SIGTERM).
    """
    sys.exit(run_with_slot(backend, resource, command, ttl_s, wait_s))


def reservations_table(items: Sequence[Mapping[str, Any]]) -> Drawn:
    return table(
        ("id", "status", "title", "resource", "client", "requested", "granted", "finished", "note"),
        [
            (
                reservation["id"],
                reservation["status"],
                shown(reservation["title"]),
                reservation["resource"],
                shown(reservation["client"] or ""),
                instant(reservation["requested_at"]),
                instant(reservation["granted_at"]),
                instant(reservation["finished_at"]),
                _note(reservation),
            )
            for reservation in items
        ],
    )


def _note(reservation: Mapping[str, Any]) -> str:
    """What a reader of the list would ask next: how it ended, whether it runs, or when it will start."""
    if reservation["outcome"]:
        why = str(reservation["error"] or "").strip().partition("\n")[0]
        return f"{reservation['outcome']} {shown(why)[:80]}".strip()
    if reservation["granted_at"]:
        return "has its slot"
    if reservation.get("estimated_start"):
        return f"starts about {instant(reservation['estimated_start'])}"
    return ""
