"""A torture worker on a machine whose wall clock is off by as many seconds as the file `TORTURE_SHIFT` says."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdbeat.domain import clock
from holdbeat.torture.worker import main

SHIFT = "TORTURE_SHIFT"


def shifted_now(self: clock.SystemClock) -> datetime:
    shift_s = float(Path(os.environ[SHIFT]).read_text() or 0)
    return clock.to_millis(datetime.now(UTC) + timedelta(seconds=shift_s))


if __name__ == "__main__":
    clock.SystemClock.now = shifted_now  # type: ignore[method-assign]
    sys.exit(main())
