"""Artifacts that are files: where they lie, and copies of them that are what was recorded."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from holdbeat.domain.errors import ArtifactChanged
from holdbeat.store.whole_files import make_file, sync


@dataclass(slots=True)
class Copied:
    """What became of the artifacts that a store keeps as files."""

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
    """Makes the folder of artifacts so that only this user can enter it, whatever the umask; mends one that is open.

    A folder that somebody chose by `artifact_dir` is left as it is if it is there.
    """
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
