"""The URL of a store: shown without its password, and refused in words that do not repeat it (SEC-07)."""

from __future__ import annotations

import re
from urllib.parse import unquote

from holdbeat.domain.errors import SettingsError
from holdbeat.domain.redaction import REDACTED

_SECRET_PARAMETERS = ("pass", "pwd", "secret", "token", "key")


def without_password(url: str) -> str:
    """A URL without the password of its user and without passwords in its query, however they are spelled.

    The password ends at the last @: unescaped characters in it do not end it sooner.
    """
    scheme, sign, rest = url.partition("://")
    if not sign or scheme.lower() == "sqlite":
        return url
    place = rest.rfind("@")
    user, colon, password = rest[: max(place, 0)].partition(":")
    if colon and password:
        rest = f"{user}:{REDACTED}{rest[place:]}"
    before, mark, query = rest.partition("?")
    pairs = [pair.partition("=") for pair in query.split("&")]
    redacted = "&".join(name + equals + (REDACTED if _is_secret(name) else value) for name, equals, value in pairs)
    return f"{scheme}://{before}{mark}{redacted}"


def _is_secret(name: str) -> bool:
    plain = unquote(name).lower()
    return any(word in plain for word in _SECRET_PARAMETERS)


def driver_missing() -> SettingsError:
    """The refusal of PostgreSQL where psycopg is not installed."""
    return SettingsError(
        "PostgreSQL needs its driver: install it with pip install 'holdbeat[postgres]'.", field="store"
    )


def not_understood(url: str) -> SettingsError:
    """The refusal of a URL that names no store."""
    scheme = url.partition("://")[0]
    return SettingsError(
        f"A store of the kind {scheme[:40]!r} is not known. Write sqlite:///file.db or "
        "postgresql://user@host/database.",
        field="store",
    )


def check_postgres_url(url: str) -> None:
    """Refuses a URL whose user or password would be taken for something else."""
    rest = url.partition("://")[2]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, _, hosts = authority.rpartition("@")
    ports = [host.rpartition(":")[2] for host in re.sub(r"\[[^]]*\]", "", hosts).split(",") if ":" in host]
    is_plain = not re.search(r"[@\[\]\s]|%(?![0-9A-Fa-f]{2})", user)
    if not is_plain or any(port and not port.isdigit() for port in ports):
        raise unreadable_url()


def unreadable_url() -> SettingsError:
    return SettingsError(
        "The URL of the store cannot be read. Characters such as / # ? @ [ ] % in its user or password must be "
        "percent-encoded (%2F for /), its port must be a number, and its query may name only parameters of PostgreSQL.",
        field="store",
    )
