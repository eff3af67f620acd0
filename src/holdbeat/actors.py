"""Names the actor of this process for the record (AUD-01): a program, or a person at its command line."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from holdbeat.store.transaction import Transaction

P = ParamSpec("P")
T = TypeVar("T")


@lru_cache(maxsize=1)
def this_program() -> str:
    """The program that this process runs, and its host."""
    name = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
    return _line(f"{name} on {socket.gethostname()}")


def by_program(tx: Transaction, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a verb of the store in the name of this program: all Events that it records say so."""
    tx.actor = this_program()
    try:
        return verb(tx, *args, **kwargs)
    finally:
        tx.actor = None


@lru_cache(maxsize=1)
def this_person() -> str:
    """The person who runs this command, and the host."""
    import getpass

    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = f"user {os.getuid()}"
    return _line(f"{name} on {socket.gethostname()}")


def _line(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)[:200]
