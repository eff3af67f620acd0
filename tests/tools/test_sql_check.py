"""The SQL check finds statements outside the store and takes no sentence for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_sql


@pytest.mark.parametrize(
    "source",
    [
        'tx.rows("SELECT 1")',
        'tx.rows("""\n    SELECT id\n    FROM job""")',
        'tx.execute("INSERT INTO meta VALUES (1)")',
        'tx.execute("INSERT OR IGNORE INTO meta VALUES (1)")',
        'tx.execute(f"UPDATE {table} SET x = 1")',
        'tx.execute("DELETE FROM " + table)',
        'tx.rows("WITH RECURSIVE chain(id) AS (SELECT 1) SELECT * FROM chain")',
        'tx.execute("CREATE UNIQUE INDEX IF NOT EXISTS a ON b (c)")',
        'tx.execute("DROP TABLE job")',
        'connection.execute("PRAGMA journal_mode")',
        'connection.execute("SET LOCAL lock_timeout = 5")',
        'connection.execute("BEGIN IMMEDIATE")',
        'QUERY = "SELECT value FROM meta"',
    ],
)
def test_a_statement_is_found_in_any_form(source: str) -> None:
    assert len(check_sql.statements(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        '"""SELECT 1 is what this module never says."""',
        'raise Invalid("Select one of them.")',
        'print("WITH a comma")',
        'label = "UPDATE"',
        'label = "DELETE"',
        'text = "CREATE a key first"',
        'text = f"{name} SELECT 1"',
        'method = "DELETE /api/jobs"',
    ],
)
def test_a_sentence_a_method_and_a_docstring_are_no_statements(source: str) -> None:
    assert check_sql.statements(source) == []


def test_sql_is_allowed_in_the_store_and_reported_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("store/jobs.py", "api/jobs.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text('x = 1\nquery = "SELECT id FROM job"\n')
    assert check_sql.main([], tmp_path) == 1
    assert capsys.readouterr().out == "api/jobs.py:2: SELECT id FROM job: move this statement into holdbeat/store\n"
    assert check_sql.main(["--report"], tmp_path) == 0
    (tmp_path / "api/jobs.py").unlink()
    assert check_sql.main([], tmp_path) == 0
