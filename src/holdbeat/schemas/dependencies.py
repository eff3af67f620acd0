"""What jobs wait for, and the graph around a job."""

from typing import Annotated, Literal, TypedDict

from holdbeat.schemas.base import Id, Instant, Keywords, Name, request

_UpstreamFields = TypedDict(
    # `as` is a word of Python, so this one cannot be written as a class.
    "_UpstreamFields",
    {
        "job_id": Id | None,
        "group_id": Id | None,
        "ref": Annotated[Name | None, Keywords({"description": "that of an earlier job of the same batch"})],
        "as": Annotated[Name | None, Keywords({"description": "the name under which its result is read"})],
    },
    total=False,
)


@request(job_id="01890a5d-ac96-774b-bcce-b302099a8057", **{"as": "pages"})
class UpstreamRequest(_UpstreamFields, total=False):
    """What a job waits for: one of `job_id`, `group_id` and `ref`."""


OnUpstream = Literal["cancel", "skip", "run"]


Upstream = TypedDict(
    "Upstream",
    {
        "job_id": Annotated[Id | None, Keywords({"description": "the first job of the chain that must end"})],
        "group_id": Id | None,
        "as": str | None,
        "met_at": Annotated[Instant | None, Keywords({"description": "when it ended; null until then"})],
        "outcome": Annotated[str | None, Keywords({"description": "the status with which it ended"})],
    },
)


class GraphNode(TypedDict):
    id: Annotated[Id, Keywords({"description": "the first job of a chain, or a group"})]
    kind: Literal["job", "group"]
    title: str
    type: str | None
    status: Annotated[str, Keywords({"description": "of the last job of the chain; GONE if it was deleted"})]
    last_job_id: Id | None
    is_centre: Annotated[bool, Keywords({"description": "whether it is the chain that was asked about"})]


GraphEdge = TypedDict(
    "GraphEdge",
    {"from": Id, "to": Id, "as": str | None, "met_at": Instant | None, "outcome": str | None},
)


class JobGraph(TypedDict):
    nodes: list[GraphNode]
    edges: Annotated[list[GraphEdge], Keywords({"description": "`to` waits for the end of `from`"})]
    is_cut: Annotated[bool, Keywords({"description": "whether there is more than the nearest 500 nodes"})]
