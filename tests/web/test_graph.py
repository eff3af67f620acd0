"""The graph of dependencies on the job page: drawn around the job, walked with the keyboard."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner
from playwright.sync_api import Page, expect

from holdbeat.cli.durable import graph as graph_command
from holdbeat.domain.submission import Submission
from holdbeat.store.jobs.submit import submit
from holdbeat.web.graph import HEIGHT, WIDTH
from tests.api.serving import Served
from tests.waiting import eventually
from tests.web.things import made

Nodes = dict[str, str]
Edges = set[tuple[str, str]]


@pytest.mark.rule("DEP-05")
def test_the_graph_around_a_job_is_drawn_and_walked_with_the_keyboard(served: Served, page: Page) -> None:
    first = served.submit("anything", {}, delay_s=3600, title="first of all")["id"]
    second = served.submit("anything", {}, title="in the middle", after=[{"job_id": first}])["id"]
    last = served.submit("anything", {}, title="at the end", after=[{"job_id": second}], on_upstream="run")["id"]
    page.goto(f"{served.url}/ui/jobs/{second}")
    graph = page.locator("#graph")
    links = graph.get_by_role("link")
    expect(links).to_have_count(3)
    names = [link.get_attribute("aria-label") for link in links.all()]
    assert names == ["Job first of all, queued", "Job in the middle, queued, this job", "Job at the end, queued"]
    expect(page.locator("#state")).to_contain_text("waits for the end of")
    places = [box["x"] for link in links.all() if (box := link.bounding_box()) is not None]
    assert places == sorted(set(places))
    links.nth(2).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/jobs/{last}")
    served.client.post(f"/api/jobs/{first}/cancel", json={}).raise_for_status()
    page.goto(f"{served.url}/ui/jobs/{second}")
    expect(page.locator("#graph .node.is-cancelled")).to_have_count(2)
    expect(page.locator("#state")).to_contain_text("upstream cancelled")


@pytest.mark.rule("DEP-05")
def test_a_job_that_nothing_is_linked_to_has_no_graph(served: Served, page: Page) -> None:
    job_id = served.submit("anything", {}, delay_s=3600)["id"]
    page.goto(f"{served.url}/ui/jobs/{job_id}")
    expect(page.locator("#state")).to_be_visible()
    expect(page.locator("#graph")).to_have_count(0)


def _printed(text: str) -> tuple[Nodes, Edges]:
    """The status of each node that `holdbeat graph` prints, by its id, and the lines between them."""
    nodes: Nodes = {}
    edges: Edges = set()
    above: list[str] = []
    for line in text.splitlines():
        lead, id_, status = re.fullmatch(r"((?:   |│  |├─ |└─ )*).* ([0-9a-f-]{36}) ([A-Z]+)\b.*", line).groups()  # type: ignore[union-attr]
        depth = len(lead) // 3
        above = [*above[:depth], id_]
        nodes[id_] = status
        if depth:
            edges.add((above[depth - 1], id_))
    return nodes, edges


def _drawn(html: str) -> tuple[Nodes, Edges]:
    """The same of the picture on the job page: a line joins the boxes at whose edges it begins and ends."""
    boxes = re.findall(
        r'<a href="/ui/(?:jobs|groups)/([0-9a-f-]{36})"[^>]*>\s*<g class="node is-([a-z]+).*?<rect x="(\d+)" y="(\d+)"',
        html,
        re.DOTALL,
    )
    starts = {(int(x) + WIDTH, int(y) + HEIGHT // 2): id_ for id_, _, x, y in boxes}
    ends = {(int(x), int(y) + HEIGHT // 2): id_ for id_, _, x, y in boxes}
    lines = re.findall(r'<path class="edge[^"]*" d="M(\d+) (\d+)C\d+ \d+ \d+ \d+ (\d+) (\d+)"', html)
    edges = {(starts[int(x1), int(y1)], ends[int(x2), int(y2)]) for x1, y1, x2, y2 in lines}
    return {id_: status.upper() for id_, status, *_ in boxes}, edges


@pytest.mark.rule("DEP-05")
def test_the_command_line_prints_the_nodes_the_lines_and_the_states_that_the_page_draws(served: Served) -> None:
    stepped = served.run_job("stepped")["id"]
    failed = served.run_job("fail", {"message": "no"})["id"]
    (child,) = served.store.write_sync(submit, [Submission("echo", parent_id=stepped)]).jobs
    members = {"mode": "parallel", "jobs": [{"type": "echo"}, {"type": "echo"}]}
    group = made(served.client.post("/api/job-groups", json=members))["id"]
    after = [{"job_id": stepped}, {"job_id": child.id}, {"job_id": failed}, {"group_id": group}]
    joined = served.submit("anything", {}, after=after, on_upstream="run", delay_s=3600)["id"]
    last = served.submit("anything", {}, after=[{"job_id": joined}, {"job_id": stepped}])["id"]
    eventually(lambda: served.client.get(f"/api/job-groups/{group}").json()["status"] == "COMPLETED")
    eventually(lambda: served.job(child.id)["status"] == "COMPLETED")
    printed = CliRunner().invoke(graph_command, [joined, "--server", served.url], catch_exceptions=False)
    nodes, edges = _printed(printed.output)
    assert (nodes, edges) == _drawn(served.client.get(f"/ui/jobs/{joined}").text)
    done = dict.fromkeys((stepped, child.id, group), "COMPLETED")
    assert nodes == {**done, failed: "FAILED", joined: "QUEUED", last: "QUEUED"}
    assert edges == {*((id_, joined) for id_ in (stepped, child.id, failed, group)), (joined, last), (stepped, last)}
