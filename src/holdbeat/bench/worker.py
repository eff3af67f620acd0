"""One of several worker processes of a measurement: `python -m holdbeat.bench.worker URL SLOTS`."""

from __future__ import annotations

import sys

from holdbeat.bench.engine import bench_app
from holdbeat.wiring import Composition

if __name__ == "__main__":
    app, _ = bench_app(sys.argv[1], slots=int(sys.argv[2]))
    sys.exit(Composition().serve(app, has_api=False, kind="worker"))
