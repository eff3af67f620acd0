"""The question for the file at a path, which every commit asks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdbeat.store.sqlite.inodes import inode


@pytest.mark.rule("OPS-03")
def test_the_inode_is_the_one_that_stat_tells(tmp_path: Path) -> None:
    for name in ("plain", "ü and a space", b"\xff not utf-8".decode("utf-8", "surrogateescape")):
        path = str(tmp_path / name)
        Path(path).write_text("")
        status = os.stat(path)
        assert inode(path) == (status.st_dev, status.st_ino)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "plain")
    assert inode(str(link)) == inode(str(tmp_path / "plain"))


@pytest.mark.rule("OPS-03")
def test_a_path_without_a_file_raises_what_stat_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, error in (
        (tmp_path / "nothing", FileNotFoundError),
        (tmp_path / "file" / "below", NotADirectoryError),
        (tmp_path / ("x" * 300), OSError),
    ):
        with pytest.raises(error) as raised:
            inode(str(path))
        with pytest.raises(error) as expected:
            os.stat(path)
        assert raised.value.errno == expected.value.errno
