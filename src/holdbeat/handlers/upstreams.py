"""What a handler sees of the jobs and groups that its job waited for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdbeat.domain.dependencies import OnUpstream
from holdbeat.domain.errors import Conflict


class Upstreams(Mapping[str, Any]):
    """The results of what the job depends on, by the names that `after` gave them; without a name, by their ids.

    The result of a group is the list of its members' results. With `on_upstream="run"` what did not complete has the
    result None, and `status` says how it ended. Otherwise that raises: only a retry by hand runs in spite of it.
    """

    def __init__(self, entries: Sequence[Mapping[str, Any]] = (), on_upstream: str | None = None) -> None:
        """`entries` are as `upstream_results` of the store reads them."""
        self.entries = entries
        self._on_upstream = on_upstream
        self._by_name = {str(entry["name"] or entry["id"]): entry for entry in entries}

    def __getitem__(self, name: str) -> Any:
        entry = self._entry(name)
        if entry["status"] != "COMPLETED" and self._on_upstream != OnUpstream.RUN:
            raise Conflict(
                f"The upstream {name!r} ({entry['id']}) has no result: it was {entry['status']}. Retry it, and this "
                "job once it has completed. To run whatever happened, submit with on_upstream='run'.",
                code="upstream_not_completed",
            )
        return entry["result"]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def status(self, name: str) -> str:
        """How it ended: COMPLETED, FAILED, SKIPPED or CANCELLED; of a group also PARTIAL."""
        return str(self._entry(name)["status"])

    def _entry(self, name: str) -> Mapping[str, Any]:
        try:
            return self._by_name[name]
        except KeyError:
            names = ", ".join(self._by_name) or "none: this job was submitted without after"
            raise KeyError(f"No upstream is named {name!r}; there are {names}.") from None


NO_UPSTREAMS = Upstreams()
"""What most jobs have; nobody changes it."""
