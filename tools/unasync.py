"""Makes the blocking client from the one with an event loop: `python -m tools.unasync` writes, `--check` compares.

The rules are few and literal, so that reading one client is reading both.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parent.parent / "src" / "holdbeat" / "client"
SOURCE = CLIENT / "asynchronous"
TARGET = CLIENT / "blocking"

RULES: tuple[tuple[str, str], ...] = (
    (r"\basync def\b", "def"),
    (r"\basync with\b", "with"),
    (r"\basync for\b", "for"),
    (r"\bawait ", ""),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\baclosing\b", "closing"),
    (r"\bAsyncBaseTransport\b", "BaseTransport"),
    (r"\bhttpx2\.AsyncClient\b", "httpx2.Client"),
    (r"\bAsync(Client|Transport|Caller|Namespace|Schedules|Endpoints)\b", r"\1"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\bimport asyncio\n", "import time\n"),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\baclose\b", "close"),
    (r"\baread\b", "read"),
    (r"\baiter_raw\b", "iter_raw"),
    (r"holdbeat\.client\.asynchronous", "holdbeat.client.blocking"),
    (r"The client for programs with an event loop; the source of the blocking one\.", "The client for plain programs."),
)
HEADER = "# Made from {name} by tools/unasync.py: change that one, then run `python -m tools.unasync`.\n"


def blocking(text: str, name: str) -> str:
    """The blocking form of a module."""
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    return HEADER.format(name=f"asynchronous/{name}") + text


def generated() -> dict[Path, str]:
    """Every generated file and what belongs in it, imports sorted and formatted."""
    return {
        TARGET / source.name: _tidied(blocking(source.read_text(encoding="utf-8"), source.name))
        for source in sorted(SOURCE.glob("*.py"))
    }


def _tidied(text: str) -> str:
    ruff = Path(sys.executable).parent / "ruff"
    name = str(TARGET / "made.py")
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        done = subprocess.run(
            [ruff, *command, "--stdin-filename", name, "-"], input=text, capture_output=True, text=True, check=True
        )
        text = done.stdout
    return text


def main() -> int:
    stale = [
        path for path, text in generated().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.name} is not what asynchronous/{path.name} makes; run python -m tools.unasync")
        return 1 if stale else 0
    for path in stale:
        path.write_text(generated()[path], encoding="utf-8")
        print(f"wrote {path.relative_to(CLIENT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
