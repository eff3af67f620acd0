"""OPS-02: a store is at one version or the next, and a history that is not ours is refused."""

from __future__ import annotations

import pytest

from holdbeat.domain.errors import StoreRefused
from holdbeat.store import migrate
from holdbeat.store.migrate import Migration, migrations
from tests.conformance.acts import OpenStore, change, count, enqueue_one, look, rows


@pytest.fixture
def empty_url(store_url: str, engine: str, request: pytest.FixtureRequest) -> str:
    """A place where no store has ever been."""
    return store_url if engine == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def open_store(empty_url: str, clock: object, request: pytest.FixtureRequest) -> OpenStore:
    opener = OpenStore(empty_url, clock)  # type: ignore[arg-type]
    request.addfinalizer(opener.close)
    return opener


def shipped_with(monkeypatch: pytest.MonkeyPatch, engine: str, sql: str) -> None:
    """As if the program came with one more migration."""
    known = migrations(engine)
    longer = (*known, Migration(known[-1].version + 1, "next", sql))
    monkeypatch.setattr(migrate, "migrations", lambda _: longer)


@pytest.mark.rule("OPS-02")
def test_an_empty_place_becomes_a_store_with_its_whole_history(open_store: OpenStore, engine: str) -> None:
    store = open_store()
    records = rows(store, "SELECT version, name, checksum FROM schema_migrations ORDER BY version")
    assert records == [(known.version, known.name, known.checksum) for known in migrations(engine)]
    assert enqueue_one(store).position == 100


@pytest.mark.rule("OPS-02")
def test_opening_a_store_again_changes_nothing(open_store: OpenStore) -> None:
    store = open_store()
    job = enqueue_one(store)
    history = rows(store, "SELECT * FROM schema_migrations")
    again = open_store()
    assert rows(again, "SELECT * FROM schema_migrations") == history
    assert look(again, job.id) == job


@pytest.mark.rule("OPS-02")
def test_the_next_version_is_applied_to_a_store_with_work_in_it(
    open_store: OpenStore, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = enqueue_one(open_store())
    shipped_with(monkeypatch, engine, "CREATE TABLE extra (n integer); INSERT INTO extra VALUES (7);")
    store = open_store()
    assert rows(store, "SELECT n FROM extra") == [(7,)]
    assert look(store, job.id).status == "QUEUED"
    open_store()
    assert count(store, "extra") == 1


@pytest.mark.rule("OPS-02")
def test_a_migration_that_fails_half_way_leaves_the_version_before_it(
    open_store: OpenStore, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = enqueue_one(open_store())
    with monkeypatch.context() as patch:
        shipped_with(patch, engine, "CREATE TABLE extra (n integer); INSERT INTO no_such_table VALUES (1);")
        with pytest.raises(Exception, match="no_such_table"):
            open_store()
    store = open_store()
    assert count(store, "schema_migrations") == len(migrations(engine))
    with pytest.raises(Exception, match="extra"):
        change(store, "SELECT n FROM extra")
    store = open_store()
    assert look(store, job.id).status == "QUEUED"


@pytest.mark.rule("OPS-02")
def test_a_store_of_a_newer_version_is_refused_and_left_alone(open_store: OpenStore) -> None:
    store = open_store()
    change(store, "INSERT INTO schema_migrations VALUES (9999, 'tomorrow', 'x', '2030-01-01')")
    with pytest.raises(StoreRefused, match=r"version 9999.*Upgrade Holdbeat") as refusal:
        open_store()
    assert refusal.value.code == "newer_schema"


@pytest.mark.rule("OPS-02")
def test_a_store_with_another_history_is_refused(open_store: OpenStore) -> None:
    store = open_store()
    change(store, "UPDATE schema_migrations SET checksum = 'other' WHERE version = 1")
    with pytest.raises(StoreRefused, match="differs") as refusal:
        open_store()
    assert refusal.value.code == "changed_schema"


@pytest.mark.rule("OPS-02", "OPS-03")
def test_a_command_that_needs_a_store_makes_none(open_store: OpenStore) -> None:
    with pytest.raises(StoreRefused) as refusal:
        open_store(create=False)
    assert refusal.value.code == "store_missing"
    with pytest.raises(StoreRefused):
        open_store(create=False)
    open_store()
    open_store(create=False)


@pytest.mark.rule("OPS-02")
def test_both_engines_have_the_same_versions_tables_and_columns(open_store: OpenStore, engine: str) -> None:
    names = [(known.version, known.name) for known in migrations("sqlite")]
    assert names == [(known.version, known.name) for known in migrations("postgres")]
    assert all(known.sql.strip() for known in migrations(engine))
