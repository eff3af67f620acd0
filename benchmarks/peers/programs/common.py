"""What all programs share: the handler's work, and how jobs are submitted and timed.

A program is called as `python -m benchmarks.peers.programs.NAME VERB ...` and prints one JSON object. The store is in
the variable BENCH_STORE, the file to which handlers append in BENCH_LINES.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

LINE_WIDTH = 28
CALLERS = 64
CHUNK = 1_000
WARM_UP = 20
LOG_WARM_UP = 400
"""So many single submissions fill SQLite's log. They are not counted: while that file grows, a commit takes longer."""
PROBE_WAIT_S = 5.0

OpenClient = Callable[[int], Any]
"""Opens a client for that many concurrent callers: a context manager, plain or asynchronous, whose value has `one`
(submits one job) and `many` (submits several at once, or None if the contestant has no such call)."""


def store() -> str:
    """The address of the store to use."""
    return os.environ["BENCH_STORE"]


@functools.cache
def _lines_file() -> int:
    return os.open(os.environ["BENCH_LINES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def append_line(number: int) -> None:
    """The work of every handler: one line with the job's number and the machine's monotonic clock."""
    os.write(_lines_file(), b"%09d %017.6f\n" % (number, time.monotonic()))


def run(open_client: OpenClient, set_up: Callable[[], Any]) -> None:
    """The command line of a program."""
    verb, *arguments = sys.argv[1:]
    if verb == "setup":
        result = set_up()
        if inspect.isawaitable(result):
            asyncio.run(_awaited(result))
        answer: dict[str, Any] = {}
    elif verb == "enqueue":
        one, by_callers, bulk = (int(text) for text in arguments)
        answer = asyncio.run(_enqueue(open_client, one, by_callers, bulk))
    elif verb == "probe":
        answer = asyncio.run(_probe(open_client, int(arguments[0]), float(arguments[1])))
    else:
        sys.exit(f"There is no verb {verb}: use setup, enqueue or probe.")
    print(json.dumps(answer))


async def _awaited(result: Any) -> None:
    await result


@contextlib.asynccontextmanager
async def _opened(open_client: OpenClient, callers: int) -> AsyncIterator[Any]:
    context = open_client(callers)
    if hasattr(context, "__aenter__"):
        async with context as client:
            yield client
    else:
        with context as client:
            yield client


async def _call(function: Callable[..., Any], argument: Any) -> None:
    """Calls a client; one that blocks may block the loop, which then has nothing else to do."""
    result = function(argument)
    if inspect.isawaitable(result):
        await result


async def _enqueue(open_client: OpenClient, one: int, by_callers: int, bulk: int) -> dict[str, Any]:
    """Submits jobs one by one, from concurrent callers, and in bulk; seconds for each, None where there is no way."""
    numbers = itertools.count()
    answer: dict[str, Any] = {"one": None, "callers": None, "bulk": None}
    async with _opened(open_client, 1) as client:
        for _ in range(min(LOG_WARM_UP, one)):
            await _call(client.one, next(numbers))
        start = time.monotonic()
        for _ in range(one):
            await _call(client.one, next(numbers))
        if one:
            answer["one"] = {"count": one, "seconds": time.monotonic() - start}
        if client.many is None:
            by_callers += bulk  # the store is to have as many jobs as the others'
        elif bulk:
            start = time.monotonic()
            for first in range(0, bulk, CHUNK):
                await _call(client.many, list(itertools.islice(numbers, min(CHUNK, bulk - first))))
            answer["bulk"] = {"count": bulk, "seconds": time.monotonic() - start}
    if by_callers:
        async with _opened(open_client, CALLERS) as client:
            each = max(1, by_callers // CALLERS)
            timed = _tasks if inspect.iscoroutinefunction(client.one) else _threads
            seconds = await timed(client.one, numbers, each)
            answer["callers"] = {"count": each * CALLERS, "seconds": seconds}
    answer["total"] = next(numbers)
    return answer


async def _tasks(one: Callable[[int], Any], numbers: Iterator[int], each: int) -> float:
    """Seconds that CALLERS tasks need for `each` submissions, after one that is not counted."""

    async def caller(count: int) -> None:
        for _ in range(count):
            await one(next(numbers))

    await asyncio.gather(*(caller(1) for _ in range(CALLERS)))
    start = time.monotonic()
    await asyncio.gather(*(caller(each) for _ in range(CALLERS)))
    return time.monotonic() - start


async def _threads(one: Callable[[int], Any], numbers: Iterator[int], each: int) -> float:
    """The same with threads, for a client that blocks."""
    ready = threading.Barrier(CALLERS + 1)
    errors: list[BaseException] = []

    def caller() -> None:
        try:
            one(next(numbers))
            ready.wait()
            for _ in range(each):
                one(next(numbers))
        except BaseException as error:
            ready.abort()
            errors.append(error)

    threads = [threading.Thread(target=caller, daemon=True) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    with contextlib.suppress(threading.BrokenBarrierError):
        ready.wait()
    start = time.monotonic()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return time.monotonic() - start


async def _probe(open_client: OpenClient, count: int, limit_s: float) -> dict[str, Any]:
    """Milliseconds from each single submission to the first line of its handler, as many as fit into the limit.

    The pause after each is random, and longer for a worker that polls: so submissions do not fall into step with it.
    """
    lines = os.open(os.environ["BENCH_LINES"], os.O_RDONLY)
    position = os.fstat(lines).st_size
    latencies: list[float] = []
    async with _opened(open_client, 1) as client:
        give_up = time.monotonic() + limit_s
        while len(latencies) < count + WARM_UP and (time.monotonic() < give_up or len(latencies) < WARM_UP + 5):
            submitted = time.monotonic()
            await _call(client.one, 500_000_000 + len(latencies))
            while os.fstat(lines).st_size < position + LINE_WIDTH:
                if time.monotonic() > submitted + PROBE_WAIT_S:
                    raise TimeoutError(f"a job did not start within {PROBE_WAIT_S:g} s")
                await asyncio.sleep(0.001)
            began = float(os.pread(lines, LINE_WIDTH, position).split()[1])
            position += LINE_WIDTH
            latencies.append((began - submitted) * 1000)
            await asyncio.sleep(random.uniform(0.005, 0.025) + random.uniform(0, latencies[-1] / 1000))
    return {"latencies_ms": latencies[WARM_UP:]}
