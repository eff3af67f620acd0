"""doctor: what is in force, where it came from, and what is wrong, each with its remedy (OPS-01)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from holdbeat.cli.checks import Check, State, checks_of
from holdbeat.cli.options import JSON, STORE, example, say_which_store
from holdbeat.cli.output import print_json, say, shown, table
from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.redaction import without_secrets
from holdbeat.domain.store_url import without_password

REMEDY = "Name another store with --store, HOLDBEAT_STORE or holdbeat.toml, or mend this one; then: holdbeat doctor."
REMEDIES = {
    "store_missing": "Make it with holdbeat migrate, or start holdbeat serve; or name the right one with --store.",
    "store_corrupt": "Restore the last backup: holdbeat restore BACKUP --force.",
    "store_deleted": "Put the file back, or restore the last backup: holdbeat restore BACKUP.",
    "store_emptied": "Restore the last backup: holdbeat restore BACKUP.",
    "store_read_only": "Make the file and its folder writable for this user; of a database, name one that writes.",
    "store_down": "Start the database, and check the address in --store.",
    "newer_schema": "Use a Holdbeat that is at least as new as the one that wrote this store.",
    "foreign_file": "Name another file with --store.",
}


@click.command(epilog=example("holdbeat doctor", "holdbeat doctor --json --store postgresql:///holdbeat"))
@click.option("--quick", is_flag=True, help="Leave out the full integrity check.")
@STORE
@JSON
@click.pass_obj
def doctor(obj: Any, /, store: str | None, quick: bool, as_json: bool) -> None:
    """Print settings with their origin, versions, and the health of the store; exit 1 if something is wrong."""
    settings = obj.settings({"store": store})
    say_which_store(settings, store)
    shown_settings = settings_json(settings)
    versions = versions_json()
    checks: list[Check] = []
    opened: Any = None
    try:
        opened = obj.open_store(settings)
    except HoldbeatError as error:
        detail = without_secrets(error.detail)
        checks.append(Check("store", State.WRONG, detail, REMEDIES.get(error.code, REMEDY)))
    else:
        try:
            checks, more = checks_of(settings, opened, quick=quick)
            versions |= more
        finally:
            opened.close()
    if as_json:
        print_json({"settings": shown_settings, "versions": versions, "checks": [asdict(check) for check in checks]})
    else:
        _draw(shown_settings, versions, checks)
    if any(check.state is State.WRONG for check in checks):
        raise click.exceptions.Exit(1)


def settings_json(settings: Any) -> dict[str, dict[str, Any]]:
    """Every setting with its value and where it came from; a password in the store's address is not shown."""
    settings_by_name = {}
    for name in settings.__dataclass_fields__:
        if name == "origins":
            continue
        value = getattr(settings, name)
        settings_by_name[name] = {
            "value": without_password(value) if name == "store" else list(value) if isinstance(value, tuple) else value,
            "origin": settings.origins.get(name, "default"),
        }
    return settings_by_name


def versions_json() -> dict[str, str]:
    import platform
    from importlib import metadata

    import apsw

    from holdbeat import __version__

    versions = {
        "holdbeat": __version__,
        "python": platform.python_version(),
        "apsw": apsw.apsw_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "platform": platform.platform(),
    }
    for name in ("psycopg", "starlette", "uvicorn", "httpx2"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _draw(settings: dict[str, dict[str, Any]], versions: dict[str, str], checks: list[Check]) -> None:
    say(
        table(
            ("setting", "value", "origin"),
            [(name, setting["value"], setting["origin"]) for name, setting in settings.items()],
        ),
        "",
        table(("program", "version"), list(versions.items())),
        "",
        table(("check", "state", "detail"), [(check.name, check.state, check.detail) for check in checks]),
    )
    remedies = [
        f"{check.name}: {shown(check.remedy)}" for check in checks if check.remedy and check.state is not State.OK
    ]
    if remedies:
        say("", "What to do:", *[f"  {remedy}" for remedy in remedies])
