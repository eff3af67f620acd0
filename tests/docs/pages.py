"""The pages of the documentation: their code blocks, links and headings, read as GitHub would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^( *)(```+)([^`\n]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?\)")


@dataclass(frozen=True)
class Block:
    """One fenced block; `words` are what follows the three backticks."""

    line: int
    words: tuple[str, ...]
    text: str

    @property
    def language(self) -> str:
        return self.words[0] if self.words else ""

    @property
    def is_tested(self) -> bool:
        return "test" in self.words[1:]

    @property
    def file(self) -> str | None:
        """`file=story.py`: the block is the content of that file."""
        return next((word.removeprefix("file=") for word in self.words[1:] if word.startswith("file=")), None)


def pages() -> list[Path]:
    """Every page that people read."""
    collected = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
    return sorted(path for path in collected if not path.name.startswith("."))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for item in _FENCE.finditer(text):
        indent = item[1]
        lines = [line.removeprefix(indent) for line in item[4].splitlines(keepends=True)]
        yield Block(text.count("\n", 0, item.start()) + 1, tuple(item[3].split()), "".join(lines))


def links_of(page: Path) -> list[str]:
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return _LINK.findall(re.sub(r"`[^`\n]*`", "", prose))


def anchors_of(page: Path) -> set[str]:
    """The anchors that headings get: lower case, punctuation dropped, spaces as dashes, repeated ones numbered."""
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    seen: dict[str, int] = {}
    anchors = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", prose, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = seen.get(anchor, 0)
        seen[anchor] = number + 1
        anchors.add(f"{anchor}-{number}" if number else anchor)
    return anchors
