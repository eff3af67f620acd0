"""A torture worker whose claims begin at floors after they stepped over few started jobs, as beside a long snapshot."""

from __future__ import annotations

import sys

from holdbeat.store.running import lane_floor
from holdbeat.torture.worker import main

if __name__ == "__main__":
    lane_floor.TOLERATED_DEAD_ENTRIES = 10
    sys.exit(main())
