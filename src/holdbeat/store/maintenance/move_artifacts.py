"""Artifacts on their way from files beside a SQLite store to where the new store keeps them.

Guards their content: a file is taken over only if it still has the checksum that was recorded with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdbeat.domain.errors import StoreRefused, TooLarge
from holdbeat.store.artifact_files import copy_checked, place_of
from holdbeat.store.running.run_output import ARTIFACT_DATA_MAX


class Artifacts:
    """Where the artifacts of the new store go: a shared folder, or the store itself."""

    def __init__(self, folder: str | None) -> None:
        self._folder = None if folder is None else Path(folder)

    def moved(self, table: str, columns: Sequence[str], row: Sequence[Any]) -> Sequence[Any]:
        """A row as the new store shall have it; only those of artifacts in files change."""
        if table != "artifacts":
            return row
        values = dict(zip(columns, row, strict=True))
        if values["path"] is None:
            return row
        file = Path(values["path"])
        if self._folder is None:
            values["path"], values["data"] = None, self._content(file, values)
        else:
            values["path"] = str(self._copied(file, values, self._folder))
        return [values[name] for name in columns]

    def _content(self, file: Path, values: dict[str, Any]) -> bytes:
        if values["size"] > ARTIFACT_DATA_MAX:
            raise TooLarge(
                f"The artifact {values['name']} of run {values['run_id']} has {values['size']:,} bytes, more than a "
                "database keeps. Set artifact_dir to a folder that all workers share, then move again.",
                code="artifact_too_large",
            )
        try:
            content = file.read_bytes()
        except OSError as error:
            raise _lost(values, error.strerror or "it cannot be read") from error
        if hashlib.sha256(content).hexdigest() != values["sha256"]:
            raise _lost(values, "its content is not what was recorded")
        return content

    def _copied(self, file: Path, values: dict[str, Any], folder: Path) -> Path:
        try:
            goal = place_of(folder, values["run_id"], values["name"])
            copy_checked(file, goal, values["sha256"])
        except OSError as error:
            raise _lost(values, error.strerror or "it cannot be read") from error
        return goal


def _lost(values: dict[str, Any], why: str) -> StoreRefused:
    return StoreRefused(
        f"The artifact {values['name']!r} of run {values['run_id']} cannot be moved: {why} ({values['path']}). Put the "
        "file back, or prune that run, then move again.",
        code="artifact_lost",
    )
