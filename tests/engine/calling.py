"""Short ways to make a call against a server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdbeat.domain.address import OutboundPolicy
from holdbeat.handlers.outbound import Answer, Outbound, OutboundFailure
from tests.engine.raw_server import Respond, serving

LOCAL = OutboundPolicy(loopback_server=True)
OPEN = OutboundPolicy(loopback_server=False)


class ScriptedResolver:
    """Answers each lookup with the next script, the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class SilentResolver:
    async def resolve(self, host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []


async def call(
    url: str,
    outbound: Outbound | None = None,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    content: bytes | None = None,
    deadline_s: float = 5.0,
    max_body_bytes: int = 1000,
) -> Answer:
    return await (outbound or Outbound(LOCAL)).call(
        method,
        url,
        headers=headers or {},
        content=content,
        deadline_s=deadline_s,
        max_body_bytes=max_body_bytes,
    )


async def failure(url: str, outbound: Outbound | None = None, **options: Any) -> OutboundFailure:
    with pytest.raises(OutboundFailure) as caught:
        await call(url, outbound, **options)
    return caught.value


async def answered(answer: bytes | Respond, **options: Any) -> Answer:
    async with serving(answer) as server:
        return await call(server.url(), **options)


async def failed(answer: bytes | Respond, **options: Any) -> OutboundFailure:
    async with serving(answer) as server:
        return await failure(server.url(), **options)
