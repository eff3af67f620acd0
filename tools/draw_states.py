"""Draws docs/states.md from the table of transitions, so that the picture cannot differ from the program.

Run as `python -m tools.draw_states`; a test keeps the file equal to what is drawn.
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdbeat.domain.job import TRANSITIONS, JobStatus

PAGE = Path(__file__).parent.parent / "docs" / "states.md"

_INTRODUCTION = """# The states of a Job

Drawn by `python -m tools.draw_states` from `TRANSITIONS` in `src/holdbeat/domain/job.py`. Every other change
is refused. No Job returns to QUEUED: a retry is a new Job.
"""


def drawn() -> str:
    """The whole page: the diagram, and the same as a table."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {JobStatus.QUEUED}"]
    lines += [f"    {before} --> {after}: {event}" for (before, event), after in TRANSITIONS.items()]
    lines += [f"    {status} --> [*]" for status in JobStatus if status.is_terminal]
    lines += ["```", "", "| from | event | to |", "| --- | --- | --- |"]
    lines += [f"| {before} | {event} | {after} |" for (before, event), after in TRANSITIONS.items()]
    return _INTRODUCTION + "\n" + "\n".join(lines) + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        if PAGE.read_text(encoding="utf-8") == drawn():
            return 0
        print("docs/states.md is out of date: run `make generate`")
        return 1
    PAGE.write_text(drawn(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
