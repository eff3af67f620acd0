"""ReportFlush: writes the progress and log lines of handlers a few times a second."""

from __future__ import annotations

from typing import ClassVar

from holdbeat.engine.run_reports import FLUSH_S, RunReports
from holdbeat.engine.service import Service


class ReportFlush(Service):
    name: ClassVar[str] = "report-flush"

    def __init__(self, reports: RunReports) -> None:
        super().__init__(reports.store, FLUSH_S)
        self._reports = reports

    async def step(self) -> int:
        return 0 if self._reports.is_empty else await self._reports.flush()
