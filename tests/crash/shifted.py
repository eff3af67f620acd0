"""`holdbeat` on a machine whose wall clock is off by as many seconds as the file `HB_SHIFT` says, at any moment."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdbeat.domain import clock
from holdbeat.wiring import main


def now(self: clock.SystemClock) -> datetime:
    return clock.to_millis(datetime.now(UTC) + timedelta(seconds=float(Path(os.environ["HB_SHIFT"]).read_text())))


if __name__ == "__main__":
    clock.SystemClock.now = now  # type: ignore[method-assign]
    main()
