"""doctor: what is in force, where it came from, and what is wrong, each with its remedy (OPS-01)."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit, urlunsplit

import click

from holdbeat.cli.checks import Check, State, checks_of
from holdbeat.cli.output import print_json, say, shown, table
from holdbeat.cli.verb import JSON, STORE, example
from holdbeat.domain.errors import HoldbeatError


@click.command(epilog=example("holdbeat doctor", "holdbeat doctor --json --store postgresql:///holdbeat"))
@click.option("--quick", is_flag=True, help="Leave out the full integrity check.")
@STORE
@JSON
@click.pass_obj
def doctor(obj: Any, /, store: str | None, quick: bool, as_json: bool) -> None:
    """Print settings with their origin, versions, and the health of the store; exit 1 if something is wrong."""
    settings = obj.settings({"store": store})
    shown_settings = settings_json(settings)
    versions = versions_json()
    checks: list[Check] = []
    opened: Any = None
    try:
        opened = obj.open_store(settings)
    except HoldbeatError as error:
        checks.append(Check("store", State.WRONG, error.detail, "See the sentence before."))
    else:
        try:
            checks, more = checks_of(settings, opened, quick=quick)
            versions |= more
        finally:
            opened.close()
    if as_json:
        print_json({"settings": shown_settings, "versions": versions, "checks": [check.as_dict() for check in checks]})
    else:
        _draw(shown_settings, versions, checks)
    if any(check.state is State.WRONG for check in checks):
        raise click.exceptions.Exit(1)


def settings_json(settings: Any) -> dict[str, dict[str, Any]]:
    """Every setting with its value and where it came from; a password in the store's address is not shown."""
    found = {}
    for name in settings.__dataclass_fields__:
        if name == "origins":
            continue
        value = getattr(settings, name)
        found[name] = {
            "value": without_password(value) if name == "store" else list(value) if isinstance(value, tuple) else value,
            "origin": settings.origins.get(name, "default"),
        }
    return found


def without_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":[redacted]@")))


def versions_json() -> dict[str, str]:
    import platform
    from importlib import metadata

    import apsw

    from holdbeat import __version__

    found = {
        "holdbeat": __version__,
        "python": platform.python_version(),
        "apsw": apsw.apsw_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "platform": platform.platform(),
    }
    for name in ("psycopg", "fastapi", "uvicorn", "httpx2"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _draw(settings: dict[str, dict[str, Any]], versions: dict[str, str], checks: list[Check]) -> None:
    say(
        table(
            ("setting", "value", "origin"), [(name, each["value"], each["origin"]) for name, each in settings.items()]
        ),
        "",
        table(("program", "version"), list(versions.items())),
        "",
        table(("check", "state", "detail"), [(each.name, each.state, each.detail) for each in checks]),
    )
    remedies = [f"{each.name}: {shown(each.remedy)}" for each in checks if each.remedy and each.state is not State.OK]
    if remedies:
        say("", "What to do:", *[f"  {remedy}" for remedy in remedies])
