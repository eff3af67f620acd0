"""Files that have their name only when they are whole and on disk."""

from __future__ import annotations

import contextlib
import os

from holdbeat.domain.errors import Conflict


def make_file(path: str) -> None:
    """An empty file that only its owner reads, anew."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def take_name(made: str, target: str) -> None:
    """Gives a finished file its name, unless somebody has taken it meanwhile; on disk when this returns."""
    sync(made)
    try:
        os.link(made, target)
    except FileExistsError:
        raise taken(target) from None
    except OSError:
        # A disk without hard links: then the look before must do.
        if os.path.lexists(target):
            raise taken(target) from None
        os.rename(made, target)
    else:
        os.unlink(made)
    sync(os.path.dirname(os.path.abspath(target)))


def taken(target: str) -> Conflict:
    return Conflict(f"{target} exists already. Name a new file for the backup.", code="target_exists")


def cannot_write(target: str, error: OSError) -> Conflict:
    """The refusal of a file that the system does not let us make."""
    folder = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(folder):
        return Conflict(f"The folder {folder} does not exist. Make it first.", code="target_cannot_open")
    return Conflict(
        f"{target} cannot be written ({error.strerror or error}). Choose a folder that this user may write to and that "
        "has space.",
        code="target_cannot_open",
    )


def sync(path: str) -> None:
    """Returns when a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
