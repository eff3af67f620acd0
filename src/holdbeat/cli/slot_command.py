"""Runs a command while a slot is held, and ends it if the slot is lost."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

import click

from holdbeat.cli.backend import Backend

POLL_S = 0.5
KILL_AFTER_S = 10.0


def run_with_slot(backend: Backend, resource: str, command: Sequence[str], ttl_s: float, wait_s: float | None) -> int:
    """The exit code of the command, or 128 and the signal that ended it."""
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
