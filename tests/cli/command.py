"""The command as a person runs it: a process of its own, which inherits nothing but loaded modules."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fork_server import WARNINGS, start_module

WORK = """
import time
from holdbeat import App, Context

app = App()


@app.job(retries=0)
async def story(ctx: Context, prompt: str = "a fox", words: int = 3) -> dict:
    ctx.log("about " + prompt)
    ctx.log("done")
    return {"text": " ".join([prompt] * words)}


@app.job(retries=0)
async def tale(ctx: Context, words: int = 3) -> str:
    ctx.log("begins")
    for number in range(words):
        ctx.emit(f"word{number} ")
    ctx.emit({"done": True})
    return "told"


@app.job(retries=0)
def broken(ctx: Context, why: str = "no reason") -> None:
    raise ValueError(why)


@app.job(resource="slow", timeout="30s")
async def slow(ctx: Context) -> str:
    import asyncio

    for number in range(300):
        ctx.log(f"line {number}")
        ctx.progress(number / 300, f"line {number}")
        await asyncio.sleep(0.1)
    return "late"
"""


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def drawn_on(terminal: int) -> bytes:
    """Everything that is drawn on a terminal until nobody holds its other end."""
    drawn = b""
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 65536):
            drawn += part
    return drawn


class Command:
    """`holdbeat` in one folder, on one store."""

    def __init__(self, folder: Path, store: str | None = None) -> None:
        self.folder = folder
        self.store = store or f"sqlite:///{folder / 'holdbeat.db'}"
        (folder / "work.py").write_text(WORK)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDBEAT_", "PYTEST"))}
        return {**kept, "HOLDBEAT_STORE": self.store, "PYTHONWARNINGS": WARNINGS}

    def start(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        return start_module(
            "holdbeat",
            *args,
            cwd=self.folder,
            env={**self.environment, **more.pop("env", {})},
            stdin=more.pop("stdin", subprocess.PIPE),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def __call__(self, *args: str, code: int = 0, text: str = "", env: dict[str, str] | None = None) -> Answer:
        """Runs a verb to its end; `code` is what it must end with."""
        process = self.start(*args, env=env or {})
        out, err = process.communicate(text, timeout=100)
        answer = Answer(process.returncode, out, err)
        assert answer.code == code, f"holdbeat {' '.join(args)} ended {answer.code}:\n{out}\n{err}"
        assert "Traceback" not in err, err
        return answer

    def submit(self, *args: str) -> str:
        """Submits a job and returns its id."""
        return self("submit", *args).out.strip()

    def beside_a_terminal(self, *args: str) -> tuple[Answer, str]:
        """Runs a verb whose error output is a terminal; also gives what was drawn there."""
        ours, theirs = pty.openpty()
        process = start_module(
            "holdbeat",
            *args,
            cwd=self.folder,
            env={**self.environment, "TERM": "xterm", "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        )
        os.close(theirs)
        drawn = drawn_on(ours)
        out, _ = process.communicate(timeout=60)
        os.close(ours)
        return Answer(process.returncode, out, ""), drawn.decode()

    def on_a_terminal(self, *args: str, columns: int = 100, code: int = 0, interrupted_at: str | None = None) -> str:
        """Runs a verb whose input and outputs are one terminal; what was drawn there, without colours.

        With `interrupted_at` it is interrupted, as by Ctrl-C, as soon as this was drawn.
        """
        ours, theirs = pty.openpty()
        process = start_module(
            "holdbeat",
            *args,
            cwd=self.folder,
            env={**self.environment, "TERM": "xterm", "COLUMNS": str(columns), "NO_COLOR": "1"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        before = b""
        while interrupted_at is not None and interrupted_at not in before.decode():
            before += os.read(ours, 65536)
        while interrupted_at is not None and process.poll() is None:
            # One that comes between the question and the reading of its answer is not heard: a person tries again.
            process.send_signal(signal.SIGINT)
            select.select([ours], [], [], 5)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        drawn = (before + drawn_on(ours)).decode()
        assert process.wait(60) == code, drawn
        os.close(ours)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn).replace("\r\n", "\n")
