"""One of several worker processes of a measurement: `python -m holdbeat.bench.worker URL SLOTS`.

Tells its parent on standard output when each numbered job began.
"""

from __future__ import annotations

import os
import sys

from holdbeat.bench.engine import bench_app
from holdbeat.wiring import Composition


class Told(dict[int, float]):
    """Starts that another process waits for."""

    def __setitem__(self, number: int, at: float) -> None:
        # Not by print: what a handler prints goes to its run's log.
        os.write(1, f"{number} {at}\n".encode())


if __name__ == "__main__":
    changes = {"retention_days": float(days)} if (days := os.environ.get("HOLDBEAT_BENCH_RETENTION_DAYS")) else {}
    app, _ = bench_app(sys.argv[1], Told(), slots=int(sys.argv[2]), **changes)
    sys.exit(Composition().serve(app, has_api=False, kind="worker"))
