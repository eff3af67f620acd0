"""A virtual environment for each peer, made when it is first needed and kept in .venv-peers."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".venv-peers"
INSTALL_LIMIT_S = 600


class NotRun(Exception):
    """This contestant cannot be measured here; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What is installed for one peer."""

    package: str
    """Whose version is reported."""
    requirements: tuple[str, ...]
    python: tuple[int, int] = (3, 11)
    """The oldest Python that it needs."""

    def ready(self) -> Path:
        """The folder of its programs, after it was made."""
        folder = CACHE / self.package
        mark = folder / ".requirements"
        text = "\n".join(self.requirements)
        if not mark.exists() or mark.read_text() != text:
            shutil.rmtree(folder, ignore_errors=True)
            self._make(folder)
            mark.write_text(text)
        return folder / "bin"

    def _make(self, folder: Path) -> None:
        CACHE.mkdir(exist_ok=True)
        interpreter = find_interpreter(self.python)
        uv = find_uv()
        if uv is not None:
            _run([uv, "venv", "--quiet", "--python", interpreter, str(folder)])
            install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(folder / "bin/python")]
        else:
            _run([interpreter, "-m", "venv", str(folder)])
            install = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*install, *self.requirements])

    def versions(self) -> dict[str, str]:
        """Of the peer and of its interpreter."""
        program = (
            "import importlib.metadata as m, platform as p, sys; print(m.version(sys.argv[1]), p.python_version())"
        )
        output = subprocess.run(
            [CACHE / self.package / "bin/python", "-c", program, self.package],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        package, python = output.split()
        return {"version": package, "python": python}


def find_uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


@functools.cache
def find_interpreter(oldest: tuple[int, int]) -> str:
    """The interpreter that runs this, or else the oldest one found that is new enough."""
    if sys.version_info[:2] >= oldest:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(oldest[1], oldest[1] + 8)]
    candidates = [path for name in names if (path := shutil.which(name))]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    managed = Path.home() / ".local/share/uv/python"
    for place in (pyenv / "versions", managed, Path("/opt/python")):
        candidates += [str(path) for path in place.glob("*/bin/python3")]
    versions = {path: version for path in candidates if (version := _version(path)) and version >= oldest}
    if not versions:
        raise NotRun(f"needs Python >= {oldest[0]}.{oldest[1]}")
    return min(versions, key=lambda path: versions[path])


def _version(path: str) -> tuple[int, int] | None:
    """What an interpreter says it is; a shim of a version that is not installed says nothing."""
    program = "import sys; print(*sys.version_info[:2])"
    try:
        output = subprocess.run([path, "-c", program], capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    major, minor = output.split()
    return int(major), int(minor)


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["no reason was printed"])[-1]
        raise NotRun(f"cannot be installed: {reason[:200]}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise NotRun(f"cannot be installed: {error}") from error
