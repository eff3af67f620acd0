"""Durable work in a torture: a job with steps, a sleep, waits for signals and a child, and jobs that wait for jobs."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdbeat.domain.submission import Submission
from holdbeat.handlers.context import Context
from holdbeat.handlers.waits import SignalTimeout

SIGNAL = "go"
Note = Callable[..., None]
"""Takes the kind of the note and its fields, and adds the time."""


async def durable_work(
    ctx: Context,
    note: Note,
    toil: Callable[[], Awaitable[None]],
    *,
    steps: int,
    sleep_s: float,
    waits: int,
    timeout_s: float,
    child: dict[str, Any] | None,
) -> None:
    """`toil` is the work of a step; `child` has the type and the params of a job."""
    assert ctx.job is not None
    of = {"run": ctx.run_id, "chain": ctx.job.chain_id}

    for number in range(steps):
        name = f"step {number}"

        async def work(name: str = name) -> str:
            note("step", **of, step=name, what="called")
            await toil()
            return f"{name} of {ctx.run_id}"

        note("step", **of, step=name, what="passed", value=await ctx.step(name, work))
    if sleep_s:
        note("sleep", **of, what="begun", seconds=sleep_s)
        await ctx.sleep(sleep_s)
        note("sleep", **of, what="over", seconds=sleep_s)
    for number in range(waits):
        wait = {**of, "number": number, "timeout_s": timeout_s}
        note("wait", **wait, what="begun")
        try:
            payload = await ctx.wait_for(SIGNAL, timeout=timeout_s)
        except SignalTimeout:
            note("wait", **wait, what="timed out", payload=None)
        else:
            note("wait", **wait, what="got", payload=payload)
    if child is not None:
        await ctx.run(child["type"], **child["params"])
        note("child", **of)


def draw_durable(choice: random.Random, longest_s: float, child: dict[str, Any]) -> dict[str, Any]:
    """Params of a durable job whose waits last up to `longest_s`."""
    return {
        "steps": choice.randint(0, 3),
        "sleep_s": choice.choice([0.0, round(longest_s * choice.uniform(0.1, 1.0), 3)]),
        "waits": choice.randint(0, 2),
        "timeout_s": round(longest_s * choice.uniform(0.5, 1.0), 3),
        "child": choice.choice([None, child]),
    }


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs of which a third waits for one or two others, and a fourth for the third."""

    submissions: list[Submission]
    after: dict[int, list[int]]
    """Who waits for whom, by places in the batch."""
    on_upstream: str

    @staticmethod
    def of(choice: random.Random, work: Callable[[], dict[str, Any]]) -> Batch:
        after = {2: choice.choice([[0], [0, 1]]), 3: [2]}
        on_upstream = choice.choice(["cancel", "skip", "run"])
        jobs = [{**work(), "ref": f"job-{place}"} for place in range(4)]
        for place, upstreams in after.items():
            jobs[place] |= {"after": [{"ref": f"job-{one}"} for one in upstreams], "on_upstream": on_upstream}
        return Batch([Submission.read(job) for job in jobs], after, on_upstream)

    def dependencies(self, job_ids: Sequence[str]) -> list[dict[str, Any]]:
        """As the checker reads them."""
        return [
            {"job": job_ids[place], "after": [job_ids[one] for one in upstreams], "on_upstream": self.on_upstream}
            for place, upstreams in self.after.items()
        ]
