"""The graph around a job: what it depends on, what depends on it, and so on in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdbeat.domain.dependencies import Edge
from holdbeat.store.reads.chains import roots_of, tips_by_root
from holdbeat.store.reads.upstreams import edges_of
from holdbeat.store.transaction import Transaction

MOST_NODES = 500


@dataclass(frozen=True, slots=True)
class Node:
    """A chain of jobs, named by its first one, or a group."""

    id: str
    is_group: bool
    title: str
    type: str | None
    status: str
    """Of the last job of the chain."""
    last_job_id: str | None


@dataclass(frozen=True, slots=True)
class Link:
    """A dependency: `target` waits for `source`."""

    source: str
    target: str
    edge: Edge


@dataclass(slots=True)
class Graph:
    centre: str
    """The node of the job that was asked about."""
    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    is_cut: bool = False
    """Whether there is more than is listed."""


def graph_of(tx: Transaction, job_id: str, most: int = MOST_NODES) -> Graph:
    """The nearest nodes around the chain of a job, at most so many, and the dependencies among them."""
    centre = roots_of(tx, [job_id]).get(job_id, job_id)
    graph = Graph(centre)
    kinds: dict[str, bool] = {centre: False}
    links: dict[tuple[str, str], Link] = {}
    frontier = [centre]
    while frontier:
        reached: list[str] = []
        for link in _links(tx, frontier):
            links[link.source, link.target] = link
            for node_id, is_group in ((link.source, link.edge.is_group), (link.target, False)):
                if node_id in kinds:
                    continue
                if len(kinds) >= most:
                    graph.is_cut = True
                    continue
                kinds[node_id] = is_group
                reached.append(node_id)
        frontier = reached
    graph.links = [link for link in links.values() if link.source in kinds and link.target in kinds]
    graph.nodes = nodes_of(tx, kinds)
    return graph


def _links(tx: Transaction, node_ids: Sequence[str]) -> list[Link]:
    """The dependencies that begin or end at these nodes."""
    # The dependencies of a manual retry are those of the first attempt.
    rows = tx.rows("SELECT id, COALESCE(root_id, id) FROM jobs WHERE id IN :ids", ids=list(node_ids))
    edges = edges_of(tx, [row[1] for row in rows])
    links = [Link(edge.upstream_id, node_id, edge) for node_id, root_id in rows for edge in edges.get(root_id, ())]
    for source, target, is_group, name, met_at, outcome in tx.rows(
        "SELECT upstream_id, job_id, is_group, name, met_at, outcome FROM dependencies WHERE upstream_id IN :ids "
        "ORDER BY job_id, number",
        ids=list(node_ids),
    ):
        links.append(Link(source, target, Edge(source, bool(is_group), name, tx.time(met_at), outcome)))
    return links


def nodes_of(tx: Transaction, kinds: dict[str, bool]) -> list[Node]:
    """The nodes with these ids; the value says whether it is a group."""
    nodes: dict[str, Node] = {}
    jobs = [node_id for node_id, is_group in kinds.items() if not is_group]
    tips = tips_by_root(tx, jobs)
    rows = tx.rows("SELECT id, title, type, status FROM jobs WHERE id IN :ids", ids=sorted(tips.values()))
    by_id = {row[0]: row for row in rows}
    for root_id, tip_id in tips.items():
        job_id, title, type_, status = by_id[tip_id]
        nodes[root_id] = Node(root_id, False, title or type_, type_, status, job_id)
    groups = [node_id for node_id, is_group in kinds.items() if is_group]
    if groups:
        for group_id, name, status in tx.rows("SELECT id, name, status FROM job_groups WHERE id IN :ids", ids=groups):
            nodes[group_id] = Node(group_id, True, name or "unnamed group", None, status, None)
    deleted = (Node(node_id, is_group, "deleted", None, "GONE", None) for node_id, is_group in kinds.items())
    return [nodes.get(node.id, node) for node in deleted]
