"""The two ways to reach the operations, and calls that are made in both."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from holdbeat.api.problem import status_of
from holdbeat.client import Client, ProblemError
from holdbeat.domain.errors import HoldbeatError
from tests.api.serving import FAR

UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"
NO_SUCH = "nonsense"
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|\+00:00)")
_CLOCK_TIME = re.compile(r"(\d{4}-\d{2}-\d{2} )?\d{2}:\d{2}(:\d{2})?( UTC|Z)?")
_AMOUNT = re.compile(r"\d+(\.\d+)? (ms|s|m|h|minutes?|seconds?)\b")
VARIES = frozenset(
    {
        "fence", "worker_id", "owner", "heartbeat_at", "lease_expires_at", "waited_s", "ran_s", "duration_s", "pid",
        "position", "secret", "previous_secret", "paused_by", "by", "idempotency_key", "oldest_wait_s", "next_cursor",
        "mean_s", "estimated_start", "host", "version_of", "resources", "memory",
    }
)  # fmt: skip
"""Fields whose values differ between two servers, or between two moments."""
ALWAYS_VARIES = frozenset(
    {"memory_bytes", "cpu_share", "actor", "idempotency_key", "paused_by", "changed_by", "client", "owner"}
)
"""Fields that may be null for one of two servers."""


class World:
    """One of the two ways, with the ids of what was made in it."""

    def __init__(self, backend: Client) -> None:
        self.backend = backend
        self.known: dict[str, Any] = {}
        self._ids: dict[str, str] = {}

    def outcome(self, call: Callable[[World], Any]) -> Any:
        """What a call gave, in a form in which two worlds can be compared."""
        try:
            return "answer", self._plain(call(self))
        except ProblemError as error:
            return "refusal", error.status, error.code, self._plain(error.detail), error.field
        except HoldbeatError as error:
            return "refusal", status_of(error), error.code, self._plain(error.detail), error.field

    def _plain(self, value: Any, name: str = "") -> Any:
        if name in ALWAYS_VARIES or (name in VARIES and value is not None):
            return f"<{name}>"
        if isinstance(value, dict):
            # Over HTTP without keys nobody is known to have acted.
            return {key: self._plain(part, key) for key, part in value.items() if key != "actor"}
        if isinstance(value, list):
            return [self._plain(part) for part in value]
        if isinstance(value, str):
            text = _ID.sub(lambda match: self._ids.setdefault(match[0], f"<id {len(self._ids)}>"), value)
            text = _CLOCK_TIME.sub("<time>", _INSTANT.sub("<instant>", text))
            # Whatever was just now for one may be a moment ago for the other.
            return _AMOUNT.sub("<amount>", text).replace("(now)", "(<amount> ago)")
        return value


Call = Callable[[World], Any]


def keep(name: str, call: Call) -> Call:
    """The call; what it gave is kept under a name for those that follow."""

    def kept(world: World) -> Any:
        world.known[name] = call(world)
        return world.known[name]

    return kept


def id_of(name: str) -> Callable[[World], str]:
    return lambda world: str(world.known[name]["id"])


def submit(type_: str, **fields: Any) -> Call:
    return lambda world: world.backend.submit_job({"type": type_, **fields})


def run(type_: str, **fields: Any) -> Call:
    """Submits a job and waits until it has ended."""
    return lambda world: world.backend.wait_job(submit(type_, **fields)(world)["id"], timeout_s=30)


def until_ended(call: Call) -> Call:
    """A call that makes a job, and waits until that has ended: later lists are the same however busy the machine is."""

    def made(world: World) -> Any:
        job = call(world)
        world.backend.wait_job(job["id"], timeout_s=30)
        return job

    return made


def on(name: str, method: str, *args: Any, **kwargs: Any) -> Call:
    """A method whose first argument is the id of what was kept under a name."""
    return lambda world: method_of(world, method)(id_of(name)(world), *args, **kwargs)


def ask(method: str, *args: Any, **kwargs: Any) -> Call:
    return lambda world: method_of(world, method)(*args, **kwargs)


def method_of(world: World, name: str) -> Any:
    method: Any = world.backend
    for part in name.split("."):
        method = getattr(method, part)
    return method


LATER_GROUP = {"mode": "parallel", "jobs": [{"type": "echo", "not_before": FAR}]}
