"""Verbs that look after a store: recover, prune, migrate, backup, restore, move-store."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from holdbeat.cli.options import JSON, STORE, example, on_store, say_which_store
from holdbeat.cli.output import bar, confirm, print_json, say, shown, table
from holdbeat.domain.errors import Conflict, Invalid, StoreRefused, Unavailable

_REPAIRS = {
    "recover_lease": "run of a worker that is gone",
    "recover_job": "job that nobody executes",
    "decide_job": "failed job without a verdict",
    "expire_reservation": "direct request that nobody waits for",
    "step_group": "group that could not move",
    "replan_orphan": "adaptive schedule without a plan",
    "stop_dead_worker": "worker that died",
}


@click.command(epilog=example("holdbeat recover", "holdbeat recover --json"))
@JSON
@on_store
def recover(settings: Any, store: Any, as_json: bool) -> None:
    """Look once for work of dead workers, repair it, and print what was repaired.

    Every serve and worker process does this by itself, all the time; this is for a store that none of them uses.
    """
    from holdbeat.handlers.marked_processes import kill_marked
    from holdbeat.store.recovery.recover import find_trouble, recovery_units

    dead = store.known_dead()
    trouble = store.read_sync(find_trouble, settings.lease_terms, dead)
    kill_marked([lease.lease_id for lease in trouble.leases])
    repaired = []
    failed = []
    for verb, arguments in recovery_units(trouble):
        unit = {"what": _REPAIRS.get(verb.__name__, verb.__name__), "id": arguments[0]}
        try:
            if store.write_sync(verb, *arguments):
                repaired.append(unit)
        except (StoreRefused, Unavailable):
            raise
        except Exception as error:  # what cannot be repaired must not keep the rest from it (REC-05)
            failed.append({**unit, "error": getattr(error, "detail", None) or f"{type(error).__name__}: {error}"})
    undone = {unit[1][0] for unit in recovery_units(store.read_sync(find_trouble, settings.lease_terms, dead))}
    for worker_id in dead - undone:
        store.withdraw_alive(worker_id)
    if as_json:
        print_json({"repaired": repaired, "failed": failed})
    elif not repaired and not failed:
        say("Nothing had to be repaired.")
    elif repaired:
        say(
            table(("id", "what"), [(repair["id"], repair["what"]) for repair in repaired]), f"{len(repaired)} repaired."
        )
    if failed:
        if not as_json:
            for repair in failed:
                click.echo(f"{repair['what']} {shown(repair['id'])}: {shown(repair['error'])}", err=True)
            click.echo(f"{len(failed)} could not be repaired; the sentences above say why.", err=True)
        raise click.exceptions.Exit(1)


@click.command(epilog=example("holdbeat prune --older-than-days 7 --yes"))
@click.option("--older-than-days", type=click.FloatRange(min=0), help="Default: the setting retention_days.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@JSON
@on_store
def prune(settings: Any, store: Any, older_than_days: float | None, yes: bool, as_json: bool) -> None:
    """Delete old records: ended chains, groups, runs, logs, artifacts, deliveries, events.

    Servers do this by themselves; what unfinished work needs stays.
    """
    from holdbeat.store.maintenance.inspection import old_rows
    from holdbeat.store.recovery.prune import forget_files
    from holdbeat.store.recovery.prune import prune as prune_batch

    days = settings.retention_days if older_than_days is None else older_than_days
    if older_than_days is None and not days:
        raise Invalid("retention_days is 0, so everything is kept. Say --older-than-days N.", field="retention_days")
    confirm(
        f"Everything that ended more than {days:g} {'day' if days == 1 else 'days'} ago will be taken away for good.",
        yes=yes,
    )
    before = store.clock.now() - timedelta(days=days)
    counts: Counter[str] = Counter()
    with bar("Prune") as report:
        # Counting is for the bar alone, and takes its time on a large store.
        old = store.read_sync(old_rows, before) if sys.stderr.isatty() else 0
        while True:
            pruned = store.write_sync(prune_batch, before)
            for path in pruned.paths:
                Path(path).unlink(missing_ok=True)
                with suppress(OSError):  # the folder of a run goes with its last artifact
                    Path(path).parent.rmdir()
            if pruned.note is not None:
                store.write_sync(forget_files, pruned.note)
            counts.update(pruned.counts)
            if not pruned.rows:
                break
            report(counts.total(), old)
        report(1, 1)
    if as_json:
        print_json({"before": before.isoformat(), "taken": dict(counts)})
    else:
        say(", ".join(f"{amount} {name}" for name, amount in counts.items()) or "Nothing is that old.")


@click.command(epilog=example("holdbeat migrate --check", "holdbeat migrate --store postgresql:///holdbeat"))
@click.option("--check", is_flag=True, help="Only print; exit 1 if migrations are pending.")
@STORE
@JSON
@click.pass_obj
def migrate(obj: Any, /, store: str | None, check: bool, as_json: bool) -> None:
    """Bring a store's schema up to date, or create an empty store. Migrations go forward only."""
    from holdbeat.store.maintenance.inspection import schema_state

    settings = obj.settings({"store": store})
    say_which_store(settings, store)
    before = schema_state(settings.store)
    if not check and before.pending:
        obj.open_store(settings, create=True).close()
    after = before if check else schema_state(settings.store)
    if as_json:
        print_json(
            {
                "engine": after.engine,
                "version": after.version,
                "applied": [{"version": v, "name": n, "applied_at": at} for v, n, at in after.applied],
                "pending": [{"version": migration.version, "name": migration.name} for migration in after.pending],
            }
        )
    else:
        done = {version for version, _, _ in before.applied}
        for version, name, at in after.applied:
            say(f"{version:04d} {name}  applied {at}{'' if version in done else '  (now)'}")
        for migration in after.pending:
            say(f"{migration.version:04d} {migration.name}  pending")
    if after.pending:
        raise click.exceptions.Exit(1)


@click.command(epilog=example("holdbeat backup /var/backups/holdbeat-monday.db"))
@click.argument("target", type=click.Path(dir_okay=False))
@JSON
@on_store
def backup(settings: Any, store: Any, target: str, as_json: bool) -> None:
    """Copy a SQLite store to a new file TARGET while it is in use, and verify the copy.

    Artifacts are copied to the folder TARGET-artifacts.
    """
    from holdbeat.store.maintenance.backup import backup as copy_store

    if not store.url.startswith("sqlite:"):
        raise Conflict("This is a PostgreSQL store: back it up with pg_dump.", code="use_pg_dump")
    with bar("Backup") as progress:
        copied = copy_store(store.path, target, progress)
    size = Path(target).stat().st_size
    if as_json:
        print_json({"target": target, "bytes": size, "verified": True, **_artifacts_json(copied)})
    else:
        say(f"{shown(target)}: {size:,} bytes, verified.")
        if copied.artifacts:
            files = "file" if copied.artifacts == 1 else "files"
            say(f"{shown(target)}-artifacts: {copied.artifacts:,} {files}, verified.")
        _say_missing(copied)


@click.command(epilog=example("holdbeat restore /var/backups/holdbeat-monday.db --store sqlite:///holdbeat.db"))
@click.argument("backup_path", metavar="BACKUP", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Replace the store that is there; it is kept beside the new one.")
@STORE
@JSON
@click.pass_obj
def restore(obj: Any, /, backup_path: str, store: str | None, force: bool, as_json: bool) -> None:
    """Verify a BACKUP and make it the store. A store in use is never overwritten."""
    from holdbeat.domain.clock import SystemClock
    from holdbeat.store.maintenance.backup import restore as put_back
    from holdbeat.store.opening import sqlite_path

    settings = obj.settings({"store": store})
    say_which_store(settings, store)
    path = sqlite_path(settings.store)
    if path is None:
        raise Conflict("This is a PostgreSQL store: restore it with pg_restore.", code="use_pg_dump")
    with bar("Restore") as report:
        restored = put_back(
            backup_path,
            path,
            now=SystemClock().now(),
            artifact_dir=settings.artifact_dir,
            force=force,
            progress=report,
        )
    # Brings an older backup up to date, and proves that the store opens.
    obj.open_store(settings).close()
    kept, copied = restored.kept, restored.copied
    if as_json:
        print_json({"store": path, "kept": kept, **_artifacts_json(copied)})
    else:
        say(f"Restored to {shown(path)}." + (f" The store before is kept at {shown(kept)}." if kept else ""))
        if copied.artifacts:
            say(f"Artifacts that are files: {copied.artifacts:,}, verified.")
        _say_missing(copied)


def _artifacts_json(copied: Any) -> dict[str, Any]:
    return {"artifacts": copied.artifacts, "missing_artifacts": copied.missing}


def _say_missing(copied: Any) -> None:
    if copied.missing:
        click.echo(
            f"Artifacts whose files are gone or were changed: {len(copied.missing):,}. The first is "
            f"{shown(copied.missing[0])}.",
            err=True,
        )


@click.command("move-store", epilog=example("holdbeat move-store --store sqlite:///holdbeat.db postgresql:///holdbeat"))
@click.argument("target", metavar="POSTGRESQL_URL")
@click.option("--artifact-dir", help="A folder that all workers share (artifacts go into the database).")
@STORE
@JSON
@click.pass_obj
def move_store(obj: Any, /, target: str, artifact_dir: str | None, store: str | None, as_json: bool) -> None:
    """Move a SQLite store to an empty PostgreSQL database, with ids, chains, schedules, history and artifacts.

    Stop all workers first. If it is interrupted, run it again: it goes on where it stopped. The source stays as it is.
    """
    from holdbeat.store.opening import sqlite_path

    settings = obj.settings({"store": store})
    say_which_store(settings, store)
    path = sqlite_path(settings.store)
    if path is None or not target.startswith(("postgresql://", "postgres://")):
        raise click.UsageError(
            "A store is moved from SQLite (--store sqlite:///file.db) to PostgreSQL (postgresql://…)."
        )
    # Both are brought to the same schema, and refused here if they cannot be used.
    obj.open_store(settings).close()
    goal = obj.settings({"store": target})
    obj.open_store(goal, create=True).close()
    from holdbeat.domain.clock import SystemClock
    from holdbeat.store.maintenance.move_artifacts import Artifacts
    from holdbeat.store.maintenance.move_store import move_store as move
    from holdbeat.store.maintenance.move_store import tables_of_others

    clock = SystemClock()
    began = clock.monotonic()
    with bar("Move") as report:
        moved = move(
            path, target, artifacts=Artifacts(artifact_dir or settings.artifact_dir), progress=_overall(report)
        )
    seconds = round(clock.monotonic() - began, 3)
    foreign_tables = tables_of_others(path)
    if as_json:
        tables = [{"name": t.name, "rows": t.rows, "checksum": t.checksum} for t in moved]
        print_json({"tables": tables, "left": foreign_tables, "seconds": seconds})
        return
    say(table(("table", "rows"), [(t.name, f"{t.rows:,}") for t in moved]))
    say(f"Copied {sum(t.rows for t in moved):,} rows of {len(moved)} tables and compared them in {seconds:.1f} s.")
    if foreign_tables:
        say(f"Not Holdbeat's, and left where they are: {shown(', '.join(foreign_tables))}.")
    say("Both stores are the same, row by row. Now set store to the new address wherever Holdbeat runs.")


def _overall(report: Callable[[int, int], None]) -> Callable[[str, int, int], None]:
    """Progress over all tables, from the progress of each."""
    by_table: dict[str, tuple[int, int]] = {}

    def progress(name: str, done: int, total: int) -> None:
        by_table[name] = (done, total)
        report(sum(counts[0] for counts in by_table.values()), sum(counts[1] for counts in by_table.values()))

    return progress
