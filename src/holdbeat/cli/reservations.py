"""Verbs about direct requests: list, show, cancel their reservations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from holdbeat.cli.backend import Backend
from holdbeat.cli.options import CURSOR, JSON, LIMIT, WATCH, ListingGroup, example, reaching
from holdbeat.cli.output import Drawn, fields, instant, show, show_list, shown, table

STATUSES = ("ACTIVE", "RELEASED", "EXPIRED")


@click.group(
    cls=ListingGroup,
    epilog=example("holdbeat reservations --status ACTIVE", "holdbeat explain RESERVATION"),
)
def reservations() -> None:
    """Direct requests: those that wait for a slot, those that run, and those that have ended."""


@reservations.command("list", epilog=example("holdbeat reservations list --status ACTIVE --watch"))
@click.option("--status", type=click.Choice(STATUSES, case_sensitive=False), help="Only this status.")
@LIMIT
@CURSOR
@WATCH
@JSON
@reaching
def list_reservations(backend: Backend, watch: float | None, as_json: bool, **filters: Any) -> None:
    """List direct requests, the newest first."""
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
    """Show a direct request: how it stands, or how it ended."""
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
    """Cancel a direct request, whether it waits or runs."""
    cancelled = backend.cancel_reservation(reservation_id, reason)
    show(
        cancelled,
        lambda reservation: [f"{reservation['id']} {reservation['outcome'] or reservation['status']}"],
        as_json=as_json,
    )


def reservations_table(items: Sequence[Mapping[str, Any]]) -> Drawn:
    return table(
        ("id", "status", "type", "resource", "requested", "granted", "finished", "note"),
        [
            (
                reservation["id"],
                reservation["status"],
                reservation["type"],
                reservation["resource"],
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
