"""What is to happen in a simulation: a list of acts and faults, drawn from a seed before it begins."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

ACTS = {
    "submit": 10, "submit_key": 3, "group": 3, "cancel": 3, "retry": 2, "direct": 3, "hint": 2, "durable": 4,
    "signal": 6, "dependent": 2, "unique": 2, "expiring": 2,
}  # fmt: skip
FAULTS = {
    "kill": 6, "freeze": 4, "shut_down": 2, "fail_before": 5, "fail_after": 6, "deaf": 4, "slow": 4, "jump": 2,
}  # fmt: skip
ACT_EVERY_S = 120.0
FAULT_EVERY_S = 250.0
BURST = 12
"""Acts often come together, and faults often hit while they do."""


@dataclass(frozen=True, slots=True)
class Item:
    at: float
    kind: str
    args: tuple[Any, ...] = ()

    @property
    def is_fault(self) -> bool:
        return self.kind in FAULTS

    def __str__(self) -> str:
        return f"{self.at:10.3f}  {self.kind} {' '.join(map(str, self.args))}".rstrip()


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a simulation needs to be the same again."""

    seed: int
    hours: float
    processes: int
    kernel_tells: bool
    """Whether the death of a process is seen at once, as on SQLite, or only by its lease, as on PostgreSQL."""
    items: tuple[Item, ...]


def draw(seed: int, hours: float) -> Plan:
    choice = random.Random(seed)
    processes = choice.choice([2, 2, 3])
    items: list[Item] = []
    end = hours * 3600.0
    at = 5.0
    while at < end:
        # A burst of acts with a fault or two in the middle of it, then a pause.
        count = choice.randint(1, BURST)
        for _ in range(count):
            items.append(Item(round(at + choice.uniform(0, 30), 3), *_act(choice)))
        for _ in range(choice.randint(0, max(1, round(2 * count * ACT_EVERY_S / FAULT_EVERY_S)))):
            items.append(Item(round(at + choice.uniform(0, 40), 3), *_fault(choice, processes)))
        at += choice.expovariate(1 / (count * ACT_EVERY_S))
    items.sort(key=lambda item: (item.at, item.kind, repr(item.args)))
    return Plan(seed, hours, processes, choice.random() < 0.5, tuple(item for item in items if item.at < end))


def _act(choice: random.Random) -> tuple[str, tuple[Any, ...]]:
    kind = choice.choices(list(ACTS), list(ACTS.values()))[0]
    return kind, (choice.randrange(2**30),)


def _fault(choice: random.Random, processes: int) -> tuple[str, tuple[Any, ...]]:
    kind = choice.choices(list(FAULTS), list(FAULTS.values()))[0]
    target = choice.randrange(processes)
    match kind:
        case "kill" | "shut_down":
            return kind, (target, round(choice.choice([0.5, 5.0, 60.0, 600.0]) * choice.random(), 3))
        case "freeze":
            return kind, (target, round(choice.choice([5.0, 60.0, 200.0, 300.0]) * choice.uniform(0.3, 1.5), 3))
        case "fail_before" | "fail_after":
            # The last target is the operator, whose submissions can stay without an answer too.
            return kind, (choice.randrange(processes + 1), choice.choice([1, 1, 2, 5]))
        case "deaf" | "slow":
            return kind, (target, round(choice.uniform(5, 120), 3))
        case _:
            amount_s = choice.choice([3.0, 60.0, 600.0, 3600.0]) * choice.uniform(-1, 1)
            return kind, (round(amount_s, 3),)
