"""A shell session as a page shows it: typed into a real bash, and its output compared with the page's.

Instants, durations and names of workers differ from day to day: where the page shows one, any will do. An id stands
for the one that came in its place when the page showed it first, in commands too. `…` stands for the rest of a line,
and on a line of its own for any lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 60.0
_MARK = "--holdbeat-docs-mark--"
_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
_VARYING = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?",
     r"\\d{4}-\\d\\d-\\d\\d[T ][0-9:.]+(?:Z|[+-][0-9:]+)?"),
    (r"\b[a-z][\w.]*-\d+-[0-9a-f]{6}\b", r"[\\w.-]+-\\d+-[0-9a-f]{6}"),
    (r"\d+\.\d+( ?)(ms|s)\b", r"[0-9.]+\1\2"),
    (r"hb_[\w-]{20,}", r"hb_[\\w-]+"),
    (r"whsec_[\w+/=]{20,}", r"whsec_\\S+"),
    (r'"(waited_s|ran_s|duration_s)": ?[\d.]+', r'"\1": ?[0-9.e-]+'),
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    command: str
    expected: str


def steps_of(text: str) -> list[Step]:
    """`$ ` begins a command, `> ` goes on with it, everything else is what it prints. A comment ends a page's line."""
    steps: list[tuple[list[str], list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append(([line[2:]], []))
        elif line.startswith("> ") and steps and not steps[-1][1]:
            steps[-1][0].append(line[2:])
        elif steps:
            steps[-1][1].append(line)
    return [Step("\n".join(command), "\n".join(output).strip("\n")) for command, output in steps]


def pattern_of(expected: str, ids: Mapping[str, str] | None = None) -> re.Pattern[str]:
    """What the page shows, with everything that varies left open; `ids` are those that are known already."""
    known = {shown: re.escape(real) for shown, real in (ids or {}).items()}
    varying = "|".join(f"(?:{item})" for item in (_ID, *(shown for shown, _ in _VARYING)))

    def any_like(text: str) -> str:
        if re.fullmatch(_ID, text):
            if text not in known:
                name = "id_" + text.replace("-", "")
                known[text] = f"(?P={name})"
                return f"(?P<{name}>{_ID})"
            return known[text]
        output, meant = next(item for item in _VARYING if re.fullmatch(item[0], text))
        return re.sub(output, meant, text)

    lines = []
    for line in expected.splitlines():
        if line.strip() == "…":
            lines.append(r"(?:.*\n)*?")
            continue
        pieces = []
        for piece in line.rstrip().split("…"):
            at, done = 0, ""
            for item in re.finditer(varying, piece):
                done += _spaced(piece[at : item.start()]) + any_like(item[0])
                at = item.end()
            pieces.append(done + _spaced(piece[at:]))
        lines.append(".*".join(pieces) + r"[ ]*\n")
    return re.compile("".join(lines))


def _spaced(text: str) -> str:
    """The text itself, except that columns may be wider or narrower."""
    return re.sub(r"(?:\\ )+", "[ ]+", re.escape(text))


class Session:
    """One bash for a page; what it started in the background ends with it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDBEAT_")}
        environment |= {
            "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
            "HOLDBEAT_PORT": str(port),
            "HOLDBEAT_SHUTDOWN_GRACE_S": "0.2",
            "COLUMNS": "160",
            "NO_PROXY": "*",
        }
        self._output = folder / ".session"
        with self._output.open("wb") as output:
            self._bash = subprocess.Popen(
                ["bash", "--noprofile", "--norc"], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=output,
                stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
        self._read = 0
        self._ids: dict[str, str] = {}

    def check(self, step: Step) -> str | None:
        """Runs one command; says what is wrong if it printed something else than the page shows."""
        command = step.command
        for output, real in self._ids.items():
            command = command.replace(output, real)
        printed = self._type(Step(command, step.expected))
        if not step.expected:
            return None
        match = pattern_of(step.expected, self._ids).fullmatch(printed)
        if match is None:
            return f"$ {command}\nprinted\n{printed}\ninstead of\n{step.expected}"
        for name, real in match.groupdict().items():
            text = name.removeprefix("id_")
            self._ids[f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"] = real
        return None

    def _type(self, step: Step) -> str:
        """What a command printed; a server in the background is waited for."""
        if not re.search(r"\bholdbeat (serve|demo)\b.*&\s*(#.*)?$", step.command):
            return self._put(step.command)
        name = next(iter(re.findall(r">\s*(\S+\.log)", step.command)), None)
        assert name is not None, f"send the output of a server to a .log file: {step.command}"
        log = self.folder / name
        # The shell makes it when the server's process begins, which may be after its prompt is back.
        log.unlink(missing_ok=True)
        marked = self._put(step.command)
        self._await(lambda: log.exists() and "serving on" in log.read_text())
        return marked

    def _put(self, command: str) -> str:
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{command}\necho {_MARK}$?\n")
        self._bash.stdin.flush()
        self._await(lambda: f"{_MARK}" in self._rest())
        text, _, _ = self._rest().partition(_MARK)
        text = re.sub(r"^bash: line \d+: +\d+ Killed .*\n", "", text, flags=re.MULTILINE)
        self._read = len(self._output.read_text())
        return text

    def _rest(self) -> str:
        text = self._output.read_text()[self._read :]
        return text if re.search(rf"{_MARK}\d+\n", text) else ""

    def _await(self, is_true: Callable[[], bool]) -> None:
        ends_at = time.monotonic() + PATIENCE_S
        while not is_true():
            assert time.monotonic() < ends_at, f"not within {PATIENCE_S:g} s; so far:\n{self._output.read_text()}"
            time.sleep(0.05)

    def close(self) -> None:
        """Ends what the page started, and the shell."""
        self._put("kill $(jobs -p) 2>/dev/null; wait 2>/dev/null")
        assert self._bash.stdin is not None
        self._bash.stdin.close()
        self._bash.wait(10)
