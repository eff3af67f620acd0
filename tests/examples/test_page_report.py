"""Fan-out and fan-in: a report over a thousand pages, each counted in a job of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import apsw
import pytest

from tests.examples.serving import ROOT


@pytest.mark.rule("DEP-01", "DEP-03", "DEP-06")
def test_a_report_over_a_thousand_pages_adds_up_what_each_of_them_says(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    words = Counter[str]()
    for number in range(1000):
        page = Counter({"harbour": 1 + number % 3, f"unit{'abcdefghi'[number % 9]}": 2 + number % 9})
        words.update(page)
        (folder / f"{number}.md").write_text(" ".join(page.elements()))
    environment = {name: text for name, text in os.environ.items() if not name.startswith("HOLDBEAT_")}
    done = subprocess.run(
        [sys.executable, "-m", "examples.page_report", str(folder)],
        cwd=ROOT,
        env={**environment, "HOLDBEAT_STORE": f"sqlite:///{tmp_path}/report.db"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"pages": 1000, "words": dict(words.most_common(10))}
    connection = apsw.Connection(f"{tmp_path}/report.db")
    assert connection.execute("SELECT status, count(*) FROM jobs GROUP BY status").fetchall() == [("COMPLETED", 1001)]
    connection.close()
