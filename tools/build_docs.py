"""Builds the docs site into build/site from the Markdown pages and the docstrings: `make docs`.

The pages stay as they are read on GitHub. This copies them to build/docs in the same folders, turns links to files
that are no pages into links to the repository, and adds the start page (README.md) and the Python reference. Sphinx
then fails on every warning, dead links and anchors included.

Sphinx with MyST was chosen because it is maintained. MkDocs 1 has had no release since 2024, Material for MkDocs ends
in May 2027, and Zensical, its successor, was at 0.0.73 in November 2026.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = Path(__file__).parent / "docs"
STAGE = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
REPOSITORY = "https://github.com/holdbeat/holdbeat"
START, PYTHON = "README.md", "docs/reference/python.md"

SECTIONS: dict[str, tuple[str, ...]] = {
    "Use it": (
        "docs/getting-started.md",
        "docs/concepts.md",
        "docs/handlers.md",
        "docs/durable-work.md",
        "docs/schedules.md",
        "docs/governor.md",
        "docs/direct-requests.md",
        "docs/limits.md",
        "docs/webhooks.md",
        "examples/README.md",
    ),
    "Run it": (
        "docs/deployment.md",
        "docs/operations.md",
        "docs/guarantees.md",
        "SECURITY.md",
        "UPGRADING.md",
        "docs/migration-from-legacy.md",
        "docs/coming-from-job-scheduler.md",
        "docs/coming-from-leased-workers.md",
        "docs/coming-from-adaptive-endpoints.md",
        "CHANGELOG.md",
    ),
    "Reference": (PYTHON, "docs/reference/cli.md", "docs/reference/api.md", "docs/states.md"),
}
"""What the site's menu begins with; all other pages follow under the last heading."""
LAST_SECTION = "Change it"

_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()<?([^)\s>]+)>?\)")
_FENCE = re.compile(r"^( *)(```+)([^`\n]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)


def pages(root: Path = ROOT) -> list[str]:
    """The Markdown pages of the repository, by their paths in it."""
    paths = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "examples").glob("*.md")]
    return sorted(str(path.relative_to(root)) for path in paths)


def prepared(text: str, page: str, known: set[str], root: Path = ROOT) -> str:
    """A page as the site needs it: its links to other pages kept, all other relative links led to the repository."""

    def link(match: re.Match[str]) -> str:
        target = _target(match[2], page, known, root)
        return f"{match[1]}{target})"

    pieces, end = [], 0
    for fence in _FENCE.finditer(text):
        pieces += [_LINK.sub(link, text[end : fence.start()]), _without_diagram(fence)]
        end = fence.end()
    return "".join([*pieces, _LINK.sub(link, text[end:])])


def _target(address: str, page: str, known: set[str], root: Path) -> str:
    if re.match(r"[a-z]+:", address) or address.startswith("#"):
        return address
    path, hash_sign, anchor = address.partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    if target == START:
        return posixpath.relpath("index.md", posixpath.dirname(page) or ".") + hash_sign + anchor
    # What does not exist is left as it is, so that Sphinx complains.
    if target in known or target.endswith(".png") or not (root / target).exists():
        return address
    kind = "tree" if (root / target).is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{target}{hash_sign}{anchor}"


def _without_diagram(fence: re.Match[str]) -> str:
    """A fenced block; the source of a diagram is shown as text, because drawing it would load code from elsewhere."""
    return fence[0].replace("```mermaid", "```text", 1)


def menu(known: set[str]) -> str:
    """The tables of contents of the start page, which become the menu."""
    listed = {page for section in SECTIONS.values() for page in section}
    rest = tuple(sorted(known - listed - {START}, key=lambda page: ("/decisions/" in page, page)))
    blocks = []
    for title, section in {**SECTIONS, LAST_SECTION: rest}.items():
        names = "\n".join(page.removesuffix(".md") for page in section)
        blocks.append(f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {title}\n\n{names}\n```\n")
    return "\n".join(blocks)


def stage(target: Path = STAGE, root: Path = ROOT) -> None:
    """Writes the pages as Sphinx reads them."""
    shutil.rmtree(target, ignore_errors=True)
    known = {*pages(root), PYTHON}
    for page in pages(root):
        text = prepared((root / page).read_text("utf-8"), page, known, root)
        path = target / ("index.md" if page == START else page)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n{menu(known)}" if page == START else text, "utf-8")
    for picture in (root / "docs").glob("*.png"):
        shutil.copy(picture, target / "docs" / picture.name)
    shutil.copy(SOURCES / "python.md", target / PYTHON)


def main() -> int:
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "--jobs", "auto"]
    command += ["--conf-dir", str(SOURCES), "--doctree-dir", str(ROOT / "build/doctrees"), str(STAGE), str(SITE)]
    finished = subprocess.run(command, cwd=ROOT, check=False)
    if finished.returncode == 0:
        print(f"{(SITE / 'index.html').relative_to(ROOT)} is ready.")
    return finished.returncode


if __name__ == "__main__":
    sys.exit(main())
