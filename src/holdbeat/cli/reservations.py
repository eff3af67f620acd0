"""Verbs about reservations: list, show, cancel them, and borrow a slot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from holdbeat.cli.arguments import DURATION
from holdbeat.cli.backend import Backend
from holdbeat.cli.options import ListingGroup, example, printing, reaching, words_of
from holdbeat.cli.output import Columns, at, instant, items_table, its_fields, shown
from holdbeat.schemas.system import ReservationStatus

TTL = click.option(
    "--ttl",
    "ttl_s",
    type=DURATION,
    default="60s",
    show_default=True,
    help="How long it is held without being extended.",
)
WAIT = click.option("--wait-timeout", "wait_s", type=DURATION, help="Wait no longer than this for a slot.")
POLL_S = 0.5
KILL_AFTER_S = 10.0
RESERVATION = click.argument("reservation_id", metavar="RESERVATION")


def _note(reservation: Mapping[str, Any]) -> str:
    """A note for the list: how the reservation ended, whether it runs, or when it will start."""
    if reservation["outcome"]:
        why = str(reservation["error"] or "").strip().partition("\n")[0]
        return f"{reservation['outcome']} {shown(why)[:80]}".strip()
    if reservation["granted_at"]:
        return "has its slot"
    if reservation.get("estimated_start"):
        return f"starts about {instant(reservation['estimated_start'])}"
    return ""


def _end(reservation: Mapping[str, Any]) -> list[Any]:
    return [f"{reservation['id']} {reservation['outcome'] or reservation['status']}"]


_COLUMNS: Columns = (
    "id", "status", ("title", lambda reservation: shown(reservation["title"])), "resource",
    ("client", lambda reservation: shown(reservation["client"] or "")), ("requested", at("requested_at")),
    ("granted", at("granted_at")), ("finished", at("finished_at")), ("note", _note),
)  # fmt: skip


@click.group(
    cls=ListingGroup,
    epilog=example("holdbeat reservations --status ACTIVE", "holdbeat explain RESERVATION"),
)
def reservations() -> None:
    """Direct requests, borrowed slots and requests through gates: waiting, with a slot, and ended."""


@reservations.command("list", epilog=example("holdbeat reservations list --status ACTIVE --watch"))
@click.option("--status", type=words_of(ReservationStatus), help="Only this status.")
@printing(items_table(_COLUMNS), is_paged=True)
def list_reservations(backend: Backend, **filters: Any) -> Any:
    """List reservations, the newest first."""
    return backend.list_reservations(**filters)


@reservations.command("show", epilog=example("holdbeat reservations show RESERVATION"))
@RESERVATION
@printing(its_fields, is_watched=True)
def show_reservation(backend: Backend, reservation_id: str) -> Any:
    """Show the state of a reservation."""
    return backend.get_reservation(reservation_id)


@reservations.command("cancel", epilog=example("holdbeat reservations cancel RESERVATION --reason 'too late'"))
@RESERVATION
@click.option("--reason", help="The reason, sent to the waiting client.")
@printing(_end)
def cancel(backend: Backend, reservation_id: str, reason: str | None) -> Any:
    """Cancel a reservation, whether it waits or has its slot."""
    return backend.cancel_reservation(reservation_id, reason)


@reservations.command("take", epilog=example("holdbeat reservations take gpu --ttl 10m --json"))
@click.argument("resource")
@TTL
@WAIT
@printing(lambda slot: [f"{slot['id']} holds a slot of {shown(slot['resource'])} until {instant(slot['expires_at'])}"])
def take(backend: Backend, resource: str, ttl_s: float, wait_s: float | None) -> Any:
    """Borrow the next free slot of RESOURCE for your own work, ahead of the queue. Extend it, then release it."""
    return backend.reserve_slot(resource, ttl_s=ttl_s, wait_s=wait_s)


@reservations.command("extend", epilog=example("holdbeat reservations extend RESERVATION --ttl 10m"))
@RESERVATION
@click.option("--ttl", "ttl_s", type=DURATION, help="For how long from now. [default: as long again as before]")
@printing(lambda slot: [f"{slot['id']} is held until {instant(slot['expires_at'])}"])
def extend(backend: Backend, reservation_id: str, ttl_s: float | None) -> Any:
    """Hold a borrowed slot for longer."""
    return backend.extend_reservation(reservation_id, ttl_s)


@reservations.command("release", epilog=example("holdbeat reservations release RESERVATION"))
@RESERVATION
@printing(_end)
def release(backend: Backend, reservation_id: str) -> Any:
    """Release a borrowed slot."""
    return backend.release_reservation(reservation_id)


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
    sys.exit(_run_with_slot(backend, resource, command, ttl_s, wait_s))


def _run_with_slot(backend: Backend, resource: str, command: Sequence[str], ttl_s: float, wait_s: float | None) -> int:
    """Ends the command if the slot is lost. The exit code of the command, or 128 and the signal that ended it."""
    with backend.slot(resource, ttl_s=ttl_s, wait_s=wait_s) as slot:
        environment = {
            **os.environ,
            "HOLDBEAT_FENCE": str(slot.fence),
            **({} if slot.number is None else {"HOLDBEAT_SLOT": str(slot.number)}),
        }
        try:
            process = subprocess.Popen(command, env=environment)
        except OSError as error:
            click.echo(f"{command[0]} cannot be run: {error.strerror or error}.", err=True)
            return 127
        is_told = False
        while True:
            try:
                code = process.wait(KILL_AFTER_S if is_told else POLL_S)
                return code if code >= 0 else 128 - code
            except subprocess.TimeoutExpired:
                if is_told:
                    process.kill()
                elif not slot.is_held:
                    click.echo(f"The slot of {resource} was lost; the command is told to end.", err=True)
                    process.terminate()
                    is_told = True
            except KeyboardInterrupt:
                # The command has got the signal too, from the terminal; the slot is held until it has ended.
                process.send_signal(signal.SIGINT)
