"""Artifacts that are files: where they lie, and copies that have their name only when they are whole and on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from holdbeat.domain.errors import ArtifactChanged, Conflict


def make_file(path: str) -> None:
    """An empty file that only its owner reads, anew."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def take_name(made: str, target: str) -> None:
    """Gives a finished file its name, unless that name is taken; on disk when this returns."""
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


@dataclass(slots=True)
class Copied:
    """The result of copying the artifacts that a store keeps as files."""

    artifacts: int = 0
    missing: list[str] = field(default_factory=list)
    """Files that were not there any more, or not with the content that was recorded."""


def artifacts_of(path: str) -> Path:
    """The folder beside a store or a backup where its artifacts are, unless the settings name another."""
    return Path(f"{path}-artifacts")


class Changed(OSError):
    """A file has not the content that was recorded of it."""


def changed(run_id: str, name: str) -> ArtifactChanged:
    """The error for an artifact whose file has another checksum than the recorded one."""
    return ArtifactChanged(
        f"The file of the artifact {name!r} of run {run_id} was changed after it was stored. It is not handed out. "
        "Restore it from a backup, and look who may write to its folder.",
        run_id=run_id,
    )


def make_private(folder: Path) -> None:
    """Lets only this user enter the folder of artifacts; a folder that `artifact_dir` names stays as it is."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if folder.name.endswith("-artifacts") and status.st_uid == os.geteuid() and status.st_mode & 0o077:
        folder.chmod(0o700)


def place_of(folder: Path, run_id: str, name: str) -> Path:
    """Where the artifact of a run lies; a record that points out of the folder is none of ours."""
    if Path(run_id).name != run_id or Path(name).name != name:
        raise Changed(0, "its name leads elsewhere")
    return (folder / run_id / name).absolute()


def recorded_at(path: str, run_id: str, name: str) -> Path:
    """The file that a record names: in the folder of its run, under its name or that of a version of it."""
    file = Path(path)
    if file.parent.name != run_id or (file.name != name and not file.name.startswith(f"{name}.")):
        raise Changed(0, "its name leads elsewhere")
    return file


def artifact_files(connection: apsw.Connection) -> list[tuple[str, str, str, str]]:
    """Run, name, checksum and file of every artifact that is not in the database itself."""
    rows = connection.execute("SELECT run_id, name, sha256, path FROM artifacts WHERE path IS NOT NULL").fetchall()
    return [(str(run_id), str(name), str(sha256), str(path)) for run_id, name, sha256, path in rows]


def checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def copy_checked(file: Path, goal: Path, sha256: str) -> None:
    """Copies a file, unless that is done already; refused (an OSError) if it has not this checksum."""
    if goal.is_file() and checksum(goal) == sha256:
        return
    make_private(goal.parent.parent)
    goal.parent.mkdir(mode=0o700, exist_ok=True)
    part = goal.with_name(f".{goal.name}.{os.getpid()}.part")
    try:
        make_file(str(part))
        shutil.copyfile(file, part)
        if checksum(part) != sha256:
            raise Changed(0, "its content is not what was recorded")
        sync(str(part))
        os.replace(part, goal)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
