"""DRV-01: what the driver reports after an error that we report ourselves does not reach the terminal."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest

from holdbeat.store.postgres.wakeups import PostgresWakeups

pytestmark = pytest.mark.parametrize("engine", ["postgres"], indirect=True)

OUTAGES = """
import contextlib, sys
import psycopg
from holdbeat.domain.errors import StoreDown
from holdbeat.store.postgres.database import StoreConnection
from tests.conformance.acts import enqueue_one, open_at, rows

END = "SELECT pg_terminate_backend(pg_backend_pid())"
store = open_at(sys.argv[1])
store.reconnect_s = 0.2
for ask in (store.write_sync, store.read_sync):
    try:
        ask(lambda tx: tx.rows(END))
    except StoreDown as error:
        print("reported:", error.detail)
enqueue_one(store)
with contextlib.suppress(psycopg.Error):
    with StoreConnection.connect(sys.argv[1], autocommit=True) as of_the_store, of_the_store.pipeline():
        of_the_store.execute(END).fetchone()
store.close()
"""
OF_THE_PROGRAM = """
with contextlib.suppress(psycopg.Error):
    with psycopg.connect(sys.argv[1], autocommit=True) as own, own.pipeline():
        own.execute(END).fetchone()
"""
AT_DEBUG = """
from holdbeat.observe.logs import configure
configure("debug")
"""


def run(program: str, url: str) -> tuple[str, str]:
    ended = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, timeout=60, check=True)
    return ended.stdout, ended.stderr


@pytest.mark.rule("DRV-01")
def test_an_outage_is_reported_once_and_not_again_by_the_driver(store_url: str) -> None:
    printed, logged = run(OUTAGES, store_url)
    assert printed.count("reported: The database cannot be reached") == 2
    assert logged == ""


@pytest.mark.rule("DRV-01")
def test_the_drivers_reports_are_in_our_log_at_the_level_debug(store_url: str) -> None:
    _, logged = run(AT_DEBUG + OUTAGES, store_url)
    reports = [line for line in logged.splitlines() if "error ignored terminating" in line]
    assert reports and all(" DEBUG   holdbeat.store " in line for line in reports)


@pytest.mark.rule("DRV-01")
def test_what_the_driver_reports_of_connections_of_the_program_itself_passes(store_url: str) -> None:
    _, logged = run(OUTAGES + OF_THE_PROGRAM, store_url)
    assert logged.count("error ignored terminating") == 1


@pytest.mark.rule("DRV-01")
def test_a_store_that_is_closed_reports_no_wake_up_that_it_could_not_send(
    engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    others = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as server:
        wakeups = PostgresWakeups(f"postgresql://nobody@127.0.0.1:{server.getsockname()[1]}/none", lambda topics: None)
        wakeups.send(frozenset({"ready"}))
        (sender,) = set(threading.enumerate()) - others
        connection, _ = server.accept()
        wakeups.close()
        connection.close()
        sender.join(10)
    assert not sender.is_alive()
    assert "wake-up not sent" not in caplog.text
