"""Dramatiq with Redis as its broker."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.programs import common

dramatiq.set_broker(RedisBroker(url=common.store()))


@dramatiq.actor(actor_name="work")
def work(number: int) -> None:
    common.append_line(number)


def open_client(callers: int) -> contextlib.nullcontext[SimpleNamespace]:
    return contextlib.nullcontext(SimpleNamespace(one=work.send, many=None))


if __name__ == "__main__":
    common.run(open_client, lambda: None)
