"""ReportFlush: writes the progress and log lines of all runs, a few times a second while there are any."""

from __future__ import annotations

import asyncio
import contextlib
from typing import ClassVar

from holdbeat.engine.run_reports import CHUNK_FLUSH_S, FLUSH_S, RunReports
from holdbeat.engine.service import Service

POLL_S = 5.0
"""How often it looks without being woken, while nothing is reported."""


class ReportFlush(Service):
    name: ClassVar[str] = "report-flush"

    def __init__(self, reports: RunReports) -> None:
        super().__init__(reports.store, FLUSH_S)
        self._reports = reports

    async def start(self) -> None:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the shutdown has flushed
                loop.call_soon_threadsafe(self.wake)

        self._reports.on_first = wake
        await super().start()

    async def step(self) -> int:
        return 0 if self._reports.is_empty else await self._reports.flush()

    async def _rest(self, pause_s: float) -> None:
        """Waits for the first report, then for others that are written with it."""
        if self._reports.is_empty:
            await super()._rest(POLL_S)
        if not self._reports.is_empty and not self._stopping:
            # The first chunk wakes it from the longer rest.
            await super()._rest(CHUNK_FLUSH_S if self._reports.has_chunks else pause_s)
