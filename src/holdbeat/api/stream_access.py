"""Re-checks authorization of open streams: the middleware checks a request once, but a stream lasts longer.

Guards SEC-02 over time: a stream says nothing more once its key is revoked, its session is over, or, if it was opened
without a key, there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from starlette.types import Scope as AsgiScope

from holdbeat.api.context import ApiContext
from holdbeat.domain.errors import HoldbeatError

if TYPE_CHECKING:
    from holdbeat.api.sessions import Session

KEY_ID = "holdbeat.key_id"
"""The key that a request came in with; None if it needed none."""
SESSION = "holdbeat.session"
"""The session that a request came as; None if it came without one."""
RETRY_S = 0.5


async def while_admitted(
    context: ApiContext, scope: AsgiScope, messages: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """The messages of a stream, each sent only while its reader still has access."""
    async with aclosing(messages):
        async for message in messages:
            if not await _is_admitted(context, scope):
                return
            yield message


async def _is_admitted(context: ApiContext, scope: AsgiScope) -> bool:
    keys = context.keys
    while not keys.is_fresh:
        try:
            await keys.refresh()
            break
        except HoldbeatError:
            # The store does not answer: messages wait until the key can be checked.
            if context.feed.is_closed:
                return False
            await asyncio.sleep(RETRY_S)
    key_id: str | None = scope[KEY_ID]
    if key_id is None:
        return not keys.any_exists
    session: Session | None = scope[SESSION]
    if session is not None:
        return keys.session(session.digest) is not None and session.ends > context.store.clock.now().timestamp()
    return keys.by_id(key_id) is not None
