"""ensure_chromium.sh waits for another apt-get, and says so, instead of failing.

apt-get is a program of the test here: it refuses while a file is locked, in the words of the real one, and installs
a file named chromium. The test runs the script as it is, with the search path reduced to what the script needs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "ensure_chromium.sh"
PROGRAMS = ("bash", "cat", "chmod", "flock", "grep", "sleep", "touch", "env")
APT_GET = """#!/usr/bin/env bash
echo "$$ $*" >> calls
exec 8>>apt.lock
if ! flock -n 8; then
    echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)" >&2
    exit 100
fi
sleep 0.2
if [ "${*: -1}" = chromium ]; then touch bin/chromium; chmod +x bin/chromium; fi
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine on which there is no Chromium, but an apt-get and the right to use it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        path = shutil.which(name)
        assert path is not None
        (programs / name).symlink_to(path)
    for name, text in {"apt-get": APT_GET, "id": "#!/usr/bin/env bash\necho 0\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return {"PATH": str(programs), "HOLDBEAT_APT_WAIT_S": "20", "HOLDBEAT_APT_LOCK": str(tmp_path / "own.lock")}


def start(environment: dict[str, str], home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", str(SCRIPT)],
        env=environment,
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def hold(path: Path) -> int:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def test_a_running_apt_get_is_waited_for_with_a_message(environment: dict[str, str], tmp_path: Path) -> None:
    other = hold(tmp_path / "apt.lock")
    script = start(environment, tmp_path)
    calls = tmp_path / "calls"
    deadline = time.monotonic() + 30
    while not calls.exists() or len(calls.read_text().splitlines()) < 2:
        assert time.monotonic() < deadline, "apt-get was not tried again"
        assert script.poll() is None, "the script did not wait"
        time.sleep(0.05)
    os.close(other)
    output, errors = script.communicate(timeout=30)
    assert script.returncode == 0, errors
    assert output.strip() == str(tmp_path / "bin/chromium")
    assert errors.count("Another apt-get runs: waiting up to 20 s for it.") == 1


def test_two_at_once_install_once_and_both_find_it(environment: dict[str, str], tmp_path: Path) -> None:
    scripts = [start(environment, tmp_path) for _ in range(2)]
    results = [script.communicate(timeout=60) for script in scripts]
    assert [script.returncode for script in scripts] == [0, 0], results
    assert {output.strip() for output, _ in results} == {str(tmp_path / "bin/chromium")}
    installs = [line for line in (tmp_path / "calls").read_text().splitlines() if line.endswith(" chromium")]
    assert len(installs) == 1


def test_the_wait_for_another_apt_get_ends(environment: dict[str, str], tmp_path: Path) -> None:
    other = hold(tmp_path / "apt.lock")
    script = start({**environment, "HOLDBEAT_APT_WAIT_S": "1"}, tmp_path)
    _, errors = script.communicate(timeout=30)
    os.close(other)
    assert script.returncode == 1
    assert "Could not get lock" in errors
    assert "sudo apt-get install chromium" in errors


def test_the_wait_for_another_checkout_ends(environment: dict[str, str], tmp_path: Path) -> None:
    other = hold(tmp_path / "own.lock")
    script = start({**environment, "HOLDBEAT_APT_WAIT_S": "1"}, tmp_path)
    _, errors = script.communicate(timeout=30)
    os.close(other)
    assert script.returncode == 1
    assert "Another make installs Chromium: waiting up to 1 s for it." in errors
    assert not (tmp_path / "calls").exists()


def test_another_error_of_apt_get_is_shown_at_once(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin/apt-get").write_text("#!/usr/bin/env bash\necho 'E: no network' >&2\nexit 100\n")
    script = start(environment, tmp_path)
    _, errors = script.communicate(timeout=30)
    assert script.returncode == 1
    assert "E: no network" in errors
