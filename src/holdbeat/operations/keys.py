"""Operations on API keys: list, create, revoke. All of them need the scope admin."""

from __future__ import annotations

import secrets
from typing import Any

from holdbeat.domain.api_key import KEY_BYTES, ApiKey, Scope, new_key
from holdbeat.domain.bounds import check_choice, check_line, duration_s
from holdbeat.domain.views import form
from holdbeat.operations import checks
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.schemas import system
from holdbeat.store.access import api_keys
from holdbeat.store.transaction import Transaction


@reads
def list_keys(tx: Transaction, context: OperationContext) -> Any:
    """List all API keys by their first characters, including revoked ones. It needs a key with the scope admin."""
    checks.check_admin(context, "Listing keys")
    return {"items": [key_json(key) for key in api_keys.list_api_keys(tx)]}


@writes
def create_key(
    tx: Transaction, context: OperationContext, name: str, *, scope: str = "write", expires_s: float | None = None
) -> Any:
    """Create an API key and show it, this once. It needs a key with the scope admin, or a server without keys."""
    checks.check_admin(context, "Creating a key")
    key = new_key(secrets.token_bytes(KEY_BYTES))
    created = api_keys.create_api_key(
        tx,
        check_line(name, "name"),
        check_choice(Scope, scope, "scope"),
        key,
        life_s=None if expires_s is None else duration_s(expires_s, field="expires_s"),
        by=context.caller,
    )
    return {**key_json(created), "key": key}


@writes
def revoke_key(tx: Transaction, context: OperationContext, key_id: str) -> Any:
    """Revoke an API key at once. It needs a key with the scope admin."""
    checks.check_admin(context, "Revoking a key")
    return key_json(api_keys.revoke_api_key(tx, checks.id_of(tx, key_id, "API key"), by=context.caller))


def key_json(key: ApiKey) -> dict[str, Any]:
    return form(key, system.ApiKey)
