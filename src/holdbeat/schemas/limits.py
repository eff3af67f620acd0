"""Limits: how much work runs at once, and how often it starts."""

from typing import Annotated, Literal, NotRequired, TypedDict

from holdbeat.schemas.base import Instant, Keywords, Name, TimeoutS, change
from holdbeat.schemas.field_bounds import SLOTS_MAX

Slots = Annotated[int, Keywords(minimum=0, maximum=SLOTS_MAX)]


class RateRequest(TypedDict):
    """At most `count` starts in `per_s` seconds, evenly spaced; `burst` further ones may come early."""

    count: Annotated[int, Keywords(minimum=1, maximum=SLOTS_MAX)]
    per_s: TimeoutS
    burst: NotRequired[Slots]


@change(slots=2)
class LimitChange(TypedDict, total=False):
    """What to set; omitted fields keep their values. A new limit with neither resource nor type covers everything."""

    resource: Name | None
    type: Name | None
    slots: Slots | None
    rate: RateRequest | None
    per_partition: bool
    fair: bool
    weights: Annotated[
        dict[str, int] | None, Keywords(description="How many starts a partition has in its turn, if not one.")
    ]


class Rate(TypedDict):
    count: int
    per_s: float
    burst: int


class LimitValues(TypedDict):
    resource: str | None
    type: str | None
    slots: int | None
    rate: Rate | None
    per_partition: bool
    fair: bool
    weights: dict[str, int] | None


class LimitThrottle(TypedDict):
    partition: str | None
    until: Instant


class Limit(LimitValues):
    name: str
    origin: Literal["settings", "operator"]
    version: Annotated[int, Keywords(description="Grows with each change of this limit.")]
    declared: Annotated[LimitValues | None, Keywords(description="What settings declare under this name.")]
    used: Annotated[int, Keywords(description="Slots that are held now.")]
    waiting: Annotated[int, Keywords(description="Jobs that wait for limits or workers.")]
    next_start_at: Annotated[Instant | None, Keywords(description="When the rate permits the next start.")]
    throttled: Annotated[
        list[LimitThrottle],
        Keywords(description="Partitions that start nothing, because a called service asked for a pause."),
    ]
    changed_at: Instant | None
    changed_by: str | None
