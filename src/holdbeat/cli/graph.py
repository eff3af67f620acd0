"""The command that prints the graph around a job as a tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdbeat.cli.backend import Backend
from holdbeat.cli.options import example, printing
from holdbeat.cli.output import shown


def _tree(graph: Mapping[str, Any]) -> list[Any]:
    nodes = {node["id"]: node for node in graph["nodes"]}
    below: dict[str, list[Mapping[str, Any]]] = {}
    for edge in graph["edges"]:
        below.setdefault(edge["from"], []).append(edge)
    targets = {edge["to"] for edge in graph["edges"]}
    lines: list[Any] = []
    printed: set[str] = set()
    stack = [(node_id, "", "", None) for node_id in reversed(nodes) if node_id not in targets]
    while stack:
        node_id, lead, indent, name = stack.pop()
        is_again = node_id in printed and node_id in below
        lines.append(lead + _line(nodes[node_id], name) + (" (see above)" if is_again else ""))
        if is_again:
            continue
        printed.add(node_id)
        edges = below.get(node_id, [])
        for number, edge in reversed(list(enumerate(edges, 1))):
            is_last = number == len(edges)
            lead, deeper = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
            stack.append((edge["to"], indent + lead, indent + deeper, edge["as"]))
    if graph["is_cut"]:
        lines.append("There is more: only the nearest jobs are printed.")
    return lines


def _line(node: Mapping[str, Any], name: str | None) -> str:
    noun = "group " if node["kind"] == "group" else ""
    called = f" (reads it as {shown(name)})" if name else ""
    mark = " <- this job" if node["is_centre"] else ""
    return f"{noun}{shown(node['title'])} {node['last_job_id'] or node['id']} {node['status']}{called}{mark}"


@click.command(epilog=example("holdbeat graph JOB"))
@click.argument("job_id", metavar="JOB")
@printing(_tree)
def graph(backend: Backend, job_id: str) -> Any:
    """Print the graph around a JOB: under each job stand those that wait for it."""
    return backend.get_graph(job_id)
