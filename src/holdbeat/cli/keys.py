"""Verbs about API keys: create, list, revoke.

Guards SEC-02: a key is printed once, when it is created, and only its hash is kept.
"""

from __future__ import annotations

import click

from holdbeat.cli.backend import Backend
from holdbeat.cli.options import JSON, ListingGroup, example, reaching, reaching_or_creating
from holdbeat.cli.output import instant, print_json, say, say_what_next, table
from holdbeat.domain.duration import duration_s


@click.group(cls=ListingGroup, epilog=example("holdbeat keys create --name dashboard --scope read"))
def keys() -> None:
    """API keys of servers. On a server these verbs need a key with the scope admin."""


@keys.command("create", epilog=example("holdbeat keys create --name deploy --scope write"))
@click.option("--name", help="Whose key it is; shown in lists (the name of its scope).")
@click.option("--scope", type=click.Choice(["read", "write", "admin"]), default="write", help="What it may do (write).")
@click.option("--expires", metavar="DURATION", help="After how long it is refused: 12h, 30d, … (never).")
@JSON
@reaching_or_creating
def create(backend: Backend, name: str | None, scope: str, expires: str | None, as_json: bool) -> None:
    """Create a key and print it; it is not shown again."""
    expires_s = None if expires is None else duration_s(expires, field="expires")
    created = backend.create_key(name or scope, scope=scope, expires_s=expires_s)
    if as_json:
        print_json(created)
        return
    click.echo(created["key"])
    click.echo("Keep it: it is not shown again. Hand it to clients as HOLDBEAT_KEY or with --key.", err=True)


@keys.command("list", epilog=example("holdbeat keys list"))
@JSON
@reaching
def list_keys(backend: Backend, as_json: bool) -> None:
    """List all keys by their first characters, revoked ones included."""
    page = backend.list_keys()
    if as_json:
        print_json(page)
        return
    items = page["items"]
    columns = ("id", "name", "prefix", "scope", "created", "last used", "expires", "revoked")
    say(
        table(
            columns,
            [
                (
                    key["id"],
                    key["name"],
                    key["prefix"],
                    key["scope"],
                    instant(key["created_at"]),
                    instant(key["last_used_at"]),
                    instant(key["expires_at"]),
                    instant(key["revoked_at"]),
                )
                for key in items
            ],
        )
    )
    if not items:
        say_what_next()


@keys.command("revoke", epilog=example("holdbeat keys revoke ID"))
@click.argument("key_id", metavar="ID")
@JSON
@reaching
def revoke(backend: Backend, key_id: str, as_json: bool) -> None:
    """Revoke a key at once."""
    revoked = backend.revoke_key(key_id)
    if as_json:
        print_json(revoked)
    else:
        say(f"{revoked['id']} ({revoked['prefix']}…) is revoked.")
