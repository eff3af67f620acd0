"""Waiting with progress: the terminal shows the job's id and how far it is, and the id again when waiting stops.

Guards what Ctrl-C means: it ends the waiting, never the job. All this goes to stderr, since programs read stdout.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, Any

import click

from holdbeat.cli.job_tables import progress_of
from holdbeat.cli.output import shown, span
from holdbeat.domain.clock import SystemClock, from_iso
from holdbeat.domain.errors import Unavailable

if TYPE_CHECKING:
    from holdbeat.cli.backend import Backend
    from holdbeat.schemas.jobs import Job

POLL_S = 0.5
INTERRUPTED = 130


def wait_in_sight(backend: Backend, job: Job, timeout_s: float | None) -> Job:
    """The job when it has ended, or the last of its retries. Ctrl-C says how to find and how to cancel it."""
    job_id = job["id"]
    try:
        return _waited(backend, job_id, timeout_s)
    except TimeoutError:
        raise Unavailable(
            f"Job {job_id} has not ended in time; it goes on. See how it is doing: {_command('show', job_id)}",
            code="waited_too_long",
        ) from None
    except KeyboardInterrupt:
        click.echo(
            f"\nStopped waiting; job {job_id} goes on.\n"
            f"  See how it is doing:  {_command('show', job_id)}\n"
            f"  Cancel it:            {_command('cancel', job_id)}",
            err=True,
        )
        raise click.exceptions.Exit(INTERRUPTED) from None


def _waited(backend: Backend, job_id: str, timeout_s: float | None) -> Job:
    if not sys.stderr.isatty():
        return backend.wait_job(job_id, timeout_s=timeout_s)
    click.echo(f"Job {job_id}", err=True)
    clock = SystemClock()
    began = clock.monotonic()
    latest = job_id
    with _one_line() as draw:
        while True:
            passed_s = clock.monotonic() - began
            left_s = POLL_S if timeout_s is None else min(POLL_S, timeout_s - passed_s)
            if left_s <= 0:
                raise TimeoutError
            try:
                return backend.wait_job(latest, timeout_s=left_s)
            except TimeoutError:
                job = backend.get_job(latest)
            while (following := job["continued_by"] or job["retried_by"]) is not None:
                latest = following
                job = backend.get_job(latest)
            draw(f"{_state_line(job, clock.now())}  {span(round(clock.monotonic() - began))}")


def _state_line(job: Job, now: datetime) -> str:
    """The status of a job with its retry, how far it is, and when it starts if it is delayed."""
    retry = f"retry {job['attempt']}" if job["attempt"] else ""
    starts = ""
    if job["status"] == "QUEUED" and job["not_before"] is not None:
        left_s = (from_iso(job["not_before"]) - now).total_seconds()
        starts = f"starts in {span(ceil(left_s))}" if left_s > 0 else ""
    return "  ".join(part for part in (shown(job["status"]), retry, starts, progress_of(job)) if part)


@contextmanager
def ticking(what: str) -> Iterator[None]:
    """Says on a terminal for how long one has waited, while the block is busy; Ctrl-C takes the request back."""
    clock = SystemClock()
    began = clock.monotonic()
    ends = threading.Event()
    try:
        if not sys.stderr.isatty():
            yield
            return
        with _one_line() as draw:

            def tick() -> None:
                while not ends.wait(POLL_S):
                    draw(f"{what}  {span(round(clock.monotonic() - began))}")

            drawing = threading.Thread(target=tick, name="holdbeat-ticking", daemon=True)
            drawing.start()
            try:
                yield
            finally:
                ends.set()
                drawing.join()
    except KeyboardInterrupt:
        click.echo("\nStopped waiting; the direct request is cancelled.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


@contextmanager
def _one_line() -> Iterator[Callable[[str], None]]:
    """One line of a terminal, written over again and again, and gone in the end."""
    width = shutil.get_terminal_size().columns

    def draw(text: str) -> None:
        click.echo(f"\r\x1b[K{text[: width - 1]}", nl=False, err=True)

    try:
        yield draw
    finally:
        draw("")


def _command(verb: str, job_id: str) -> str:
    """A command that reaches the same jobs as this one did."""
    context = click.get_current_context()
    words = ["holdbeat", verb, job_id]
    for option in ("store", "server"):
        if context.get_parameter_source(option) is click.core.ParameterSource.COMMANDLINE:
            value: Any = context.params.get(option)
            words += [f"--{option}", str(value)]
    return shlex.join(words)
