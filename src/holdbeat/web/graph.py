"""The graph around a job as geometry: nodes in columns from left to right, and the lines between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdbeat.store.reads.graph import Graph, Node

COLUMN, ROW = 260, 60
WIDTH, HEIGHT = 212, 44
_TITLE_MAX = 24
DRAWN_MAX = 60
"""More nodes than this are no picture any more."""


@dataclass(frozen=True, slots=True)
class Box:
    x: int
    y: int
    title: str
    label: str
    """The text for screen readers."""
    href: str | None
    status: str
    is_centre: bool
    after: tuple[str, ...]
    """The titles of what it waits for."""


def drawn_graph(graph: Graph) -> dict[str, Any] | None:
    """Boxes, lines and the size of the picture; None where the job depends on nothing and nothing on it."""
    if not graph.links:
        return None
    columns = _columns(graph)
    rows: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        column = columns[node.id]
        places[node.id] = (column * COLUMN, rows.get(column, 0) * ROW)
        rows[column] = rows.get(column, 0) + 1
    # The job that the page is about stands in the tab order where it stands in the picture.
    ordered = sorted(graph.nodes, key=lambda node: places[node.id])
    titles = {node.id: node.title for node in graph.nodes}
    after: dict[str, list[str]] = {}
    for link in graph.links:
        after.setdefault(link.target, []).append(titles[link.source])
    return {
        "boxes": [_box(node, *places[node.id], graph.centre, after.get(node.id, [])) for node in ordered],
        "lines": [
            {
                "path": _curve(places[link.source], places[link.target]),
                "is_met": link.edge.met_at is not None,
            }
            for link in graph.links
        ],
        "width": (max(columns.values()) + 1) * COLUMN - (COLUMN - WIDTH),
        "height": max(rows.values()) * ROW - (ROW - HEIGHT),
        "box_width": WIDTH,
        "is_cut": graph.is_cut,
    }


def _columns(graph: Graph) -> dict[str, int]:
    """The column of each node: the length of the longest way to it. There are no cycles, so this comes to an end."""
    below: dict[str, list[str]] = {}
    open_links = {node.id: 0 for node in graph.nodes}
    for link in graph.links:
        below.setdefault(link.source, []).append(link.target)
        open_links[link.target] += 1
    columns = dict.fromkeys(open_links, 0)
    ready = [node_id for node_id, count in open_links.items() if not count]
    while ready:
        node_id = ready.pop()
        for target in below.get(node_id, ()):
            columns[target] = max(columns[target], columns[node_id] + 1)
            open_links[target] -= 1
            if not open_links[target]:
                ready.append(target)
    return columns


def _box(node: Node, x: int, y: int, centre: str, after: list[str]) -> Box:
    title = node.title if len(node.title) <= _TITLE_MAX else f"{node.title[: _TITLE_MAX - 1]}…"
    noun = "Group" if node.is_group else "Job"
    href = None
    if node.status != "GONE":
        href = f"/ui/groups/{node.id}" if node.is_group else f"/ui/jobs/{node.last_job_id}"
    this = ", this job" if node.id == centre else ""
    label = f"{noun} {node.title}, {node.status.lower()}{this}"
    return Box(x, y, title, label, href, node.status, node.id == centre, tuple(after))


def _curve(source: tuple[int, int], target: tuple[int, int]) -> str:
    x1, y1 = source[0] + WIDTH, source[1] + HEIGHT // 2
    x2, y2 = target[0], target[1] + HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"
