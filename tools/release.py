"""Makes the files of a release and checks them: `make release`. It publishes nothing.

Refuses an uncommitted change, a version that has a tag already, a version without a section in CHANGELOG.md, and a
wheel that lacks a file of the package or contains another.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import holdbeat

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
NEEDED_IN_SDIST = (
    "LICENSE", "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "tests/conftest.py", "benchmarks/__init__.py",
)  # fmt: skip


class Refused(Exception):
    """The release cannot be made; the sentence says what to do."""


def check_tree(root: Path, version: str) -> None:
    """Refuses a tree with uncommitted changes, and a version that was released."""
    changes = _git(root, "status", "--porcelain")
    if changes:
        raise Refused(f"There are uncommitted changes; commit or remove them first:\n{changes}")
    if _git(root, "tag", "--list", f"v{version}"):
        raise Refused(f"The tag v{version} exists. Write the next version into src/holdbeat/__init__.py.")


def check_version(version: str, changelog: str) -> None:
    """Refuses a version of another form, or one that the changelog does not describe."""
    if not VERSION.fullmatch(version):
        raise Refused(f"{version} is not a version such as 0.2.0 or 0.2.0rc1. Correct src/holdbeat/__init__.py.")
    section = re.search(
        rf"^## \[?{re.escape(version)}\]? - \d{{4}}-\d{{2}}-\d{{2}}\n(.*?)(?=^## |\Z)", changelog, re.M | re.S
    )
    if section is None:
        raise Refused(
            f"CHANGELOG.md has no section for {version}. Turn Unreleased into `## [{version}] - YYYY-MM-DD` and put "
            "an empty Unreleased above it."
        )
    if not re.search(r"^- ", section[1], re.M):
        raise Refused(f"The section for {version} in CHANGELOG.md is empty. Say what changed.")


def build(root: Path, target: Path) -> tuple[Path, Path]:
    """Builds the source distribution and the wheel."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(target)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    return next(target.glob("*.tar.gz")), next(target.glob("*.whl"))


def package_files(root: Path) -> set[str]:
    """What the wheel must contain of the package."""
    source = root / "src"
    return {
        str(path.relative_to(source))
        for path in (source / "holdbeat").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def check_wheel(wheel: Path, version: str, files: set[str]) -> None:
    """Refuses a wheel that lacks a file of the package or contains another, or that has another version."""
    information = f"holdbeat-{version}.dist-info/"
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        if f"{information}METADATA" not in names:
            raise Refused(f"{wheel.name} is not a wheel of version {version}.")
        entry_points = archive.read(f"{information}entry_points.txt").decode()
    own = {name for name in names if not name.startswith(information)}
    if own != files:
        lacking, more = sorted(files - own), sorted(own - files)
        raise Refused(f"The wheel lacks {lacking or 'nothing'} and has {more or 'nothing'} too much.")
    if f"{information}licenses/LICENSE" not in names:
        raise Refused("The wheel lacks the license.")
    for group in ("[console_scripts]", "[pytest11]"):
        if group not in entry_points:
            raise Refused(f"The wheel lacks the entry points {group}.")


def check_sdist(sdist: Path, version: str) -> None:
    """Refuses a source distribution from which the tests could not be run."""
    with tarfile.open(sdist) as archive:
        names = set(archive.getnames())
    lacking = [name for name in NEEDED_IN_SDIST if f"holdbeat-{version}/{name}" not in names]
    if lacking:
        raise Refused(f"The source distribution lacks {', '.join(lacking)}: see tool.hatch.build in pyproject.toml.")


def _git(root: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    version = holdbeat.__version__
    try:
        check_tree(ROOT, version)
        check_version(version, (ROOT / "CHANGELOG.md").read_text("utf-8"))
        shutil.rmtree(DIST, ignore_errors=True)
        sdist, wheel = build(ROOT, DIST)
        check_wheel(wheel, version, package_files(ROOT))
        check_sdist(sdist, version)
    except Refused as refusal:
        print(f"No release: {refusal}", file=sys.stderr)
        return 1
    print(f"""Made and checked dist/{sdist.name} and dist/{wheel.name}. Nothing was published. Next, by hand:

  1. make test                                  on the commit that is released
  2. git tag --sign v{version} --message 'Holdbeat {version}'
  3. git push origin v{version}
  4. upload both files to PyPI (twine upload dist/*)
  5. publish the release on GitHub with the section of CHANGELOG.md
  6. write the next version into src/holdbeat/__init__.py""")
    return 0


if __name__ == "__main__":
    sys.exit(main())
