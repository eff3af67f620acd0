"""A release is refused unless the tree, the version, the changelog and the built files are in order."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

import holdbeat
from tools import release

ROOT = Path(__file__).parents[2]
CHANGELOG = """# Changelog

## [Unreleased]

## [0.2.0] - 2027-01-31

### Added

- Something.

## [0.1.0] - 2027-01-01
"""


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    git(tmp_path, "init")
    (tmp_path / "file").write_text("text")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--message", "first")
    return tmp_path


def test_a_clean_tree_and_a_new_version_are_accepted(tree: Path) -> None:
    release.check_tree(tree, "0.2.0")
    release.check_version("0.2.0", CHANGELOG)


def test_an_uncommitted_change_is_refused(tree: Path) -> None:
    (tree / "new").write_text("text")
    with pytest.raises(release.Refused, match="uncommitted"):
        release.check_tree(tree, "0.2.0")


def test_a_version_with_a_tag_is_refused(tree: Path) -> None:
    git(tree, "tag", "v0.2.0")
    with pytest.raises(release.Refused, match="next version"):
        release.check_tree(tree, "0.2.0")


@pytest.mark.parametrize(
    ("version", "reason"),
    [("0.2", "not a version"), ("0.2.0+local", "not a version"), ("0.3.0", "no section"), ("0.1.0", "is empty")],
)
def test_a_version_that_the_changelog_does_not_describe_is_refused(version: str, reason: str) -> None:
    with pytest.raises(release.Refused, match=reason):
        release.check_version(version, CHANGELOG)


def test_the_files_that_are_built_from_this_tree_are_complete(tmp_path: Path) -> None:
    sdist, wheel = release.build(ROOT, tmp_path)
    files = release.package_files(ROOT)
    assert "holdbeat/py.typed" in files
    release.check_wheel(wheel, holdbeat.__version__, files)
    release.check_sdist(sdist, holdbeat.__version__)
    with pytest.raises(release.Refused, match=r"lacks \['holdbeat/gone.sql'\]"):
        release.check_wheel(wheel, holdbeat.__version__, files | {"holdbeat/gone.sql"})
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("tests/left.py", "")
    with pytest.raises(release.Refused, match=r"has \['tests/left.py'\] too much"):
        release.check_wheel(wheel, holdbeat.__version__, files)
    with pytest.raises(release.Refused, match="is not a wheel of version"):
        release.check_wheel(wheel, "9.9.9", files)
