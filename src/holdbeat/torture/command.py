"""The verb `torture`."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

TAKEN_OVER = ("horizon_s", "trigger_batch", "aging_s")
LEASES = ("lease_s", "heartbeat_s", "grace_s", "recover_s")


@click.command(
    epilog="\b\nExamples:\n  holdbeat torture --minutes 10\n"
    "  holdbeat torture --store postgresql:///holdbeat_test --minutes 60 --json"
)
@click.option("--store", help="Whose disk or database to use; the store itself is not touched. Default: yours.")
@click.option("--minutes", type=click.FloatRange(0.05, 7 * 24 * 60), default=5.0, show_default=True, help="How long.")
@click.option("--workers", type=click.IntRange(2, 32), default=3, show_default=True, help="Processes at a time.")
@click.option("--rate", type=click.FloatRange(0.1, 10_000), default=20.0, show_default=True, help="Acts a second.")
@click.option("--fault-every", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds.")
@click.option("--seed", type=int, help="Which acts and faults. Default: by chance; the verdict names it.")
@click.option("--keep-leases", is_flag=True, help="Use your lease settings instead of leases of a few seconds.")
@click.option("--keep", is_flag=True, help="Keep store, logs and witness files even if all promises hold.")
@click.option("--json", "as_json", is_flag=True, help="The verdict as one JSON object.")
@click.pass_obj
def torture(
    obj: Any,
    /,
    store: str | None,
    minutes: float,
    workers: int,
    rate: float,
    fault_every: float,
    seed: int | None,
    keep_leases: bool,
    keep: bool,
    as_json: bool,
) -> None:
    """Try to break Holdbeat on this machine, and say whether it held.

    Starts worker processes on a store of its own, beside yours on the same disk or in a schema of its own in the same
    database, and kills, stops and shuts them down while jobs, groups, schedules, direct requests and webhooks are under
    way. Then a checker compares what was acknowledged and what the handlers saw with what is in the store. Your jobs
    are not touched. Exit code 0: every promise held; 1: one was broken, and what was written is kept.
    """
    from holdbeat.torture.campaign import QUICK_LEASES, Campaign, Terms

    settings = obj.settings({"store": store})
    taken_over = {name: getattr(settings, name) for name in TAKEN_OVER}
    leases = {name: getattr(settings, name) for name in LEASES} if keep_leases else QUICK_LEASES
    with _place(settings.store) as place:
        terms = Terms(
            store=place.url,
            seconds=minutes * 60,
            folder=place.folder,
            seed=secrets.randbelow(2**31) if seed is None else seed,
            workers=workers,
            rate=rate,
            fault_every_s=fault_every,
            settings={**taken_over, **leases},
            progress=lambda text: click.echo(text, err=True),
        )
        verdict = Campaign(terms).run()
        place.is_kept = keep or not verdict.holds
        click.echo(json.dumps(verdict.as_json()) if as_json else verdict.as_text())
        if place.is_kept:
            click.echo(f"Kept for a look: {place.folder} and {place.told}", err=True)
    sys.exit(0 if verdict.holds else 1)


class _Place:
    def __init__(self, url: str, folder: Path, told: str) -> None:
        self.url = url
        self.folder = folder
        self.told = told
        self.is_kept = False


@contextlib.contextmanager
def _place(url: str) -> Iterator[_Place]:
    """A store of its own where the user's is: a new file in a new folder beside it, or a new schema."""
    from holdbeat.store.opening import sqlite_path

    name = f"holdbeat_torture_{secrets.token_hex(4)}"
    path = sqlite_path(url)
    if path is not None:
        beside = Path(path).absolute().parent if path != ":memory:" else Path.cwd()
        folder = Path(tempfile.mkdtemp(prefix=".holdbeat-torture-", dir=beside))
        place = _Place(f"sqlite:///{folder / 'torture.db'}", folder, "its torture.db")
    else:
        folder = Path(tempfile.mkdtemp(prefix="holdbeat-torture-"))
        _in_database(url, f"CREATE SCHEMA {name}")
        options = quote(f"-csearch_path={name}")
        place = _Place(f"{url}{'&' if '?' in url else '?'}options={options}", folder, f"the schema {name}")
    try:
        yield place
    finally:
        if not place.is_kept:
            shutil.rmtree(folder, ignore_errors=True)
            if path is None:
                _in_database(url, f"DROP SCHEMA IF EXISTS {name} CASCADE")


def _in_database(url: str, statement: str) -> None:
    from holdbeat.domain.errors import StoreDown
    from holdbeat.domain.store_url import driver_missing

    try:
        import psycopg
    except ImportError as error:
        raise driver_missing() from error
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement.encode())
    except psycopg.Error as error:
        raise StoreDown(
            f"A schema of its own could not be made or removed ({error}). Name a database with --store on which this "
            "user may create schemas."
        ) from error
