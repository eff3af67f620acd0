"""Every error that Holdbeat raises on purpose.

    HoldbeatError
    ├── Invalid            the request cannot be understood or breaks a rule of form     (HTTP 422)
    │   ├── Malformed      it is not even JSON                                           (HTTP 400)
    │   └── TooLarge       it exceeds a limit of size                                    (HTTP 413)
    ├── Unauthorized       no key, or one that is not known                              (HTTP 401)
    ├── Forbidden          the key, or the place the request came from, may not do this  (HTTP 403)
    ├── NotFound           there is no such thing                                        (HTTP 404)
    ├── Conflict           the thing exists, but its state forbids the request           (HTTP 409)
    ├── TooManyRequests    one client asks for too much at the same time                (HTTP 429)
    ├── Stale              the caller edited an older version                            (HTTP 412)
    ├── Unavailable        try again later: no worker, shutting down, store busy         (HTTP 503)
    │   ├── StoreBusy      the store is locked by somebody else beyond the time limit
    │   └── StoreDown      the store cannot be reached or cannot write just now
    ├── ArtifactChanged    the file of an artifact is not what was recorded              (HTTP 500)
    ├── StoreRefused       the store must not be used: corrupt, replaced, newer, read-only
    └── SettingsError      a setting is unknown or impossible

Each carries a stable `code` for programs and a sentence for people that says what to do.
"""

from __future__ import annotations

from typing import Any


class HoldbeatError(Exception):
    """Base of all errors that are answers rather than bugs."""

    default_code = "error"

    def __init__(self, detail: str, *, code: str | None = None, field: str | None = None, **ids: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or self.default_code
        self.field = field
        self.ids = ids

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.detail, self.code, self.field, self.ids)


def _rebuild(
    kind: type[HoldbeatError], detail: str, code: str, field: str | None, ids: dict[str, Any]
) -> HoldbeatError:
    return kind(detail, code=code, field=field, **ids)


class Invalid(HoldbeatError):
    default_code = "invalid"


class Malformed(Invalid):
    default_code = "malformed_json"


class TooLarge(Invalid):
    default_code = "too_large"


class Unauthorized(HoldbeatError):
    default_code = "unauthorized"


class Forbidden(HoldbeatError):
    default_code = "forbidden"


class NotFound(HoldbeatError):
    default_code = "not_found"


class Conflict(HoldbeatError):
    default_code = "conflict"


class TooManyRequests(HoldbeatError):
    default_code = "too_many_requests"


class Stale(HoldbeatError):
    default_code = "stale_version"


def refuse_stale(what: str, present: int, version: int | None, **ids: str) -> None:
    """Refuses a change that was made for another version of a thing than the present one."""
    if version is not None and version != present:
        raise Stale(
            f"{what} has changed since you read it: it is at version {present}, not {version}. Read it again and "
            "repeat your change.",
            **ids,
        )


class Unavailable(HoldbeatError):
    default_code = "unavailable"


class StoreBusy(Unavailable):
    default_code = "store_busy"


class StoreDown(Unavailable):
    default_code = "store_down"


class ArtifactChanged(HoldbeatError):
    default_code = "artifact_changed"


class StoreRefused(HoldbeatError):
    default_code = "store_refused"


class SettingsError(HoldbeatError):
    default_code = "bad_setting"
