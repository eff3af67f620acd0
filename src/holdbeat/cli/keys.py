"""Verbs about API keys: create, list, revoke.

Guards SEC-02: a key is printed once, when it is created, and only its hash is kept.
"""

from __future__ import annotations

from typing import Any

import click

from holdbeat.cli.backend import Backend
from holdbeat.cli.options import JSON, ListingGroup, example, printing, reaching, reaching_or_creating, words_of
from holdbeat.cli.output import Columns, at, items_table, print_json, show_list
from holdbeat.domain.bounds import duration_s
from holdbeat.schemas.system import KeyScope


@click.group(cls=ListingGroup, epilog=example("holdbeat keys create --name dashboard --scope read"))
def keys() -> None:
    """API keys of servers. On a server these verbs need a key with the scope admin."""


@keys.command("create", epilog=example("holdbeat keys create --name deploy --scope write"))
@click.option("--name", help="The owner, shown in lists (the name of the scope).")
@click.option("--scope", type=words_of(KeyScope), default="write", help="What it may do (write).")
@click.option("--expires", metavar="DURATION", help="When it expires: 12h, 30d, … (never).")
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


_COLUMNS: Columns = (
    "id", "name", "prefix", "scope", ("created", at("created_at")), ("last used", at("last_used_at")),
    ("expires", at("expires_at")), ("revoked", at("revoked_at")),
)  # fmt: skip


@keys.command("list", epilog=example("holdbeat keys list"))
@JSON
@reaching
def list_keys(backend: Backend, as_json: bool) -> None:
    """List all keys by their first characters, including revoked ones."""
    show_list(backend.list_keys, items_table(_COLUMNS), as_json=as_json)


@keys.command("revoke", epilog=example("holdbeat keys revoke ID"))
@click.argument("key_id", metavar="ID")
@printing(lambda key: [f"{key['id']} ({key['prefix']}…) is revoked."])
def revoke(backend: Backend, key_id: str) -> Any:
    """Revoke a key at once."""
    return backend.revoke_key(key_id)
