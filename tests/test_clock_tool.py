"""The clock check finds every way to read a clock, and lets the Clock pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_clock


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import time\ntime.time()", "time.time"),
        ("import time as t\nt.monotonic()", "time.monotonic"),
        ("from time import perf_counter\nperf_counter()", "time.perf_counter"),
        ("from time import monotonic_ns as tick\ntick()", "time.monotonic_ns"),
        ("import datetime\ndatetime.datetime.now()", "datetime.datetime.now"),
        ("import datetime as d\nd.date.today()", "datetime.date.today"),
        ("from datetime import datetime as dt\ndt.utcnow()", "datetime.datetime.utcnow"),
        (
            "from datetime import datetime\nstamp = field(default_factory=datetime.now)",
            "datetime.datetime.now",
        ),
        ("def late():\n    import time\n    return time.time()", "time.time"),
        ("import time\nclock = time\nclock.time()", "time.time"),
        ("from time import *", "time.*"),
    ],
)
def test_a_clock_is_found_under_any_name(source: str, name: str) -> None:
    assert [reading.name for reading in check_clock.readings(source)] == [name]


@pytest.mark.parametrize(
    "source",
    [
        "clock.now()",
        "self.clock.monotonic()",
        "import time\ntime.sleep(1)",
        "from datetime import datetime\ndatetime(2026, 1, 1)\ndatetime.fromisoformat(text)",
        "import asyncio\nasyncio.get_running_loop().time()",
        "def step(now): return now.time()",
    ],
)
def test_time_that_is_handed_in_is_no_clock(source: str) -> None:
    assert check_clock.readings(source) == []


def test_only_the_clock_module_may_read_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "domain").mkdir()
    (tmp_path / "domain" / "clock.py").write_text("import time\ntime.time()\n")
    assert check_clock.main(tmp_path) == 0
    (tmp_path / "engine.py").write_text("import time\n\ntime.time()\n")
    assert check_clock.main(tmp_path) == 1
    assert "engine.py:3: reads time.time" in capsys.readouterr().out
