"""What all tests share: two real stores, a Hypothesis profile, and the promise that no test is skipped."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.postgres import PostgresServer

if TYPE_CHECKING:
    from tests.conformance.databases import Databases

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=10)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "default"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in the background lets them ignore Ctrl-C; the commands under test must hear it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Without this, pytest-asyncio's first question for the loop of the main thread makes one that nobody closes.
asyncio.set_event_loop(None)

DOMAIN = Path(__file__).with_name("domain")
SKIPPED = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("holdbeat")
    group.addoption(
        "--campaign",
        choices=("short", "long"),
        default="short",
        help="how far crash and stress tests go: short for every run, long for `make crash`",
    )
    group.addoption(
        "--store",
        choices=("sqlite",),
        help="run only the tests that need no PostgreSQL, for `make quick`; without it every test runs",
    )
    group.addoption("--rule", metavar="ID", action="append", help="run only the tests that prove this rule")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SKIPPED] = {}
    config.pluginmanager.register(NothingIsSkipped(config), "holdbeat-nothing-is-skipped")


def pytest_unconfigure() -> None:
    """Ends the process that watches the runs of this process, as the end of a worker does."""
    from holdbeat.handlers.process_group import watcher

    if watcher._process is not None and watcher._process.stdin is not None and watcher._pid == os.getpid():
        watcher._process.stdin.close()
        watcher._process.wait(20)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rules = set(config.getoption("--rule") or ())
    if rules:
        _keep(config, items, lambda item: any(rules & set(mark.args) for mark in item.iter_markers("rule")))
    if config.getoption("--store") == "sqlite":
        _keep(config, items, lambda item: not _needs_postgres(item))
    # The quickest tests last: no process then waits for another one's long test at the end of the run.
    items.sort(key=lambda item: item.path.is_relative_to(DOMAIN))


def _keep(config: pytest.Config, items: list[pytest.Item], is_kept: Callable[[pytest.Item], bool]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not is_kept(item)])
    items[:] = [item for item in items if is_kept(item)]


def _needs_postgres(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params.values() if callspec else ()
    return "postgres" in parameters or "postgres_server" in getattr(item, "fixturenames", ())


class NothingIsSkipped:
    """Fails a run in which a test was skipped or expected to fail: a guarantee that was not tried is none."""

    def __init__(self, config: pytest.Config) -> None:
        self._skipped = config.stash[SKIPPED]
        self._is_worker = hasattr(config, "workerinput")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped or hasattr(report, "wasxfail"):
            self._skipped[report.nodeid] = _reason(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._skipped[report.nodeid] = _reason(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._skipped and not self._is_worker and session.exitstatus in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._skipped:
            terminalreporter.section("tests that did not run", red=True)
            for nodeid, reason in sorted(self._skipped.items()):
                terminalreporter.line(f"{nodeid}: {reason}")
            terminalreporter.line("No test may be skipped or expected to fail; the run counts as failed.", red=True)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail or 'no reason given'}"
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


@pytest.fixture(scope="session")
def campaign(pytestconfig: pytest.Config) -> str:
    """`short` or `long`: how far a crash or stress test should go."""
    return str(pytestconfig.getoption("--campaign"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """This test process's own PostgreSQL (one per xdist worker)."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def databases(postgres_server: PostgresServer) -> Iterator[Databases]:
    """Migrated, empty databases, used again once they are wiped: making one costs more than most tests."""
    from tests.conformance.databases import Databases

    pool = Databases(postgres_server)
    yield pool
    pool.close()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database on a running server, for one test."""
    postgres_server.start()
    url = postgres_server.create_database()
    yield url
    postgres_server.start()
    postgres_server.drop_database(url)


@pytest.fixture
def tmp_store_path(tmp_path: Path) -> Path:
    """Where a test may keep its SQLite store; nothing is there yet."""
    return tmp_path / "holdbeat.db"
