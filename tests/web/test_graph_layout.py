"""The geometry of the graph: every job stands to the right of all that it waits for."""

from __future__ import annotations

import pytest

from holdbeat.domain.dependencies import Edge
from holdbeat.store.reads.graph import Graph, Link, Node
from holdbeat.web.graph import COLUMN, drawn_graph


@pytest.mark.rule("DEP-05")
def test_a_job_stands_right_of_the_longest_way_to_it() -> None:
    ids = ["a", "b", "c", "d"]
    pairs = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("a", "d")]
    graph = Graph("c", [Node(id_, False, id_, "noop", "QUEUED", id_) for id_ in ids])
    graph.links = [Link(source, target, Edge(source, False)) for source, target in pairs]
    drawn = drawn_graph(graph)
    assert drawn is not None
    assert {box.title: box.x for box in drawn["boxes"]} == {"a": 0, "b": COLUMN, "c": 2 * COLUMN, "d": 3 * COLUMN}
    assert [box.title for box in drawn["boxes"] if box.is_centre] == ["c"]
