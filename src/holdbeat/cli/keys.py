"""Verbs about API keys: made, listed, revoked; on the store itself, because a key is what a server asks for.

Guards SEC-02: a key is printed once, when it is made, and only its hash is kept.
"""

from __future__ import annotations

import secrets
from typing import Any

import click

from holdbeat.cli.options import JSON, ListingGroup, example, on_store
from holdbeat.cli.output import instant, print_json, say, say_what_next, table
from holdbeat.domain.bounds import check_line
from holdbeat.domain.duration import duration_s
from holdbeat.operations.keys import key_json


@click.group(cls=ListingGroup, epilog=example("holdbeat keys create --name dashboard --scope read"))
def keys() -> None:
    """API keys of servers on this store."""


@keys.command("create", epilog=example("holdbeat keys create --name deploy --scope write"))
@click.option("--name", help="Whose key it is; shown in lists (the name of its scope).")
@click.option("--scope", type=click.Choice(["read", "write", "admin"]), default="write", help="What it may do (write).")
@click.option("--expires", metavar="DURATION", help="After how long it is refused: 12h, 30d, … (never).")
@JSON
@on_store(create=True)
def create(settings: Any, store: Any, name: str | None, scope: str, expires: str | None, as_json: bool) -> None:
    """Create a key and print it; it is not shown again."""
    from holdbeat.domain.api_key import KEY_BYTES, Scope, new_key
    from holdbeat.store.access.api_keys import create_api_key

    key = new_key(secrets.token_bytes(KEY_BYTES))
    life_s = None if expires is None else duration_s(expires, field="expires")
    owner = check_line(name or scope, "name", 200)
    made = store.write_sync(create_api_key, owner, Scope(scope), key, life_s=life_s)
    if as_json:
        print_json({**key_json(made), "key": key})
        return
    click.echo(key)
    click.echo("Keep it: it is not shown again. Hand it to clients as HOLDBEAT_KEY or with --key.", err=True)


@keys.command("list", epilog=example("holdbeat keys list"))
@JSON
@on_store()
def list_keys(settings: Any, store: Any, as_json: bool) -> None:
    """List all keys by their first characters, revoked ones included."""
    from holdbeat.store.access.api_keys import list_api_keys

    items = [key_json(key) for key in store.read_sync(list_api_keys)]
    if as_json:
        print_json({"items": items, "next_cursor": None})
        return
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
@on_store()
def revoke(settings: Any, store: Any, key_id: str, as_json: bool) -> None:
    """Revoke a key at once."""
    from holdbeat.store.access.api_keys import revoke_api_key

    revoked = key_json(store.write_sync(revoke_api_key, key_id))
    if as_json:
        print_json(revoked)
    else:
        say(f"{revoked['id']} ({revoked['prefix']}…) is revoked.")
