"""Settings: one frozen object from holdbeat.toml, the environment and flags, in that order of increasing strength.

Guards OPS-01: each setting is checked once, where it comes in; an unknown or impossible one is refused by its name,
and every value remembers where it came from.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from holdbeat.domain.affinity import AffinityTerms
from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.errors import Invalid, SettingsError
from holdbeat.domain.gate import Gate, gate_of
from holdbeat.domain.lease import PRESETS, LeaseTerms
from holdbeat.domain.limit import Limit, Limits, limit_of
from holdbeat.domain.old_words import OLD_SETTINGS

FILE = "holdbeat.toml"
PREFIX = "HOLDBEAT_"
_NOT_SETTINGS = frozenset(
    {
        "HOLDBEAT_CONFIG", "HOLDBEAT_SERVER", "HOLDBEAT_KEY", "HOLDBEAT_APP",
        "HOLDBEAT_RUN_ID", "HOLDBEAT_JOB_ID", "HOLDBEAT_FENCE", "HOLDBEAT_ATTEMPT",
        "HOLDBEAT_SLOT",
    }
)  # fmt: skip
"""Environment variables of ours that name other things; the other lines are what a shell job is handed."""


@dataclass(frozen=True, slots=True)
class DirectRoute:
    """What an extra path of direct requests leads to."""

    type: str
    bare: bool = False
    """Whether the body is always the params, and the answer always the result."""

    def __str__(self) -> str:
        return f"{self.type} (bare)" if self.bare else self.type


@dataclass(frozen=True, slots=True)
class Settings:
    store: str = "sqlite:///holdbeat.db"
    host: str = "127.0.0.1"
    port: int = 7450
    slots: int = 1
    http_slots: int = 256
    concurrency: str = "resources:default=1,http=256"
    limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lease_s: float = 300
    heartbeat_s: float = 30
    grace_s: float = 60
    recover_s: float = 5
    shutdown_grace_s: float = 30
    direct_wait_s: float = 300
    reservation_s: float = 600
    horizon_s: float = 10
    trigger_batch: int = 500
    aging_s: float = 0
    starved_s: float = 300
    direct_burst: int = 0
    affinity_wait_s: float = 60
    affinity_run: int = 20
    retention_days: float = 30
    suspend_s: float = 5
    allow_shell: bool = False
    legacy_api: bool = True
    direct_routes: Mapping[str, DirectRoute] = field(default_factory=dict)
    gates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    exposed: str = "auto"
    outbound_allow: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    artifact_dir: str | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    log_level: str = "info"
    log_format: str = "text"
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def lease_terms(self) -> LeaseTerms:
        return LeaseTerms(self.lease_s, self.heartbeat_s, self.grace_s)

    @property
    def affinity_terms(self) -> AffinityTerms:
        return AffinityTerms(self.affinity_wait_s, self.affinity_run)

    @property
    def concurrency_policy(self) -> ConcurrencyPolicy:
        return ConcurrencyPolicy.parse(self.concurrency)

    @property
    def named_limits(self) -> list[Limit]:
        """The limits that the tables `[limits.NAME]` declare."""
        return [limit_of(name, values) for name, values in self.limits.items()]

    @property
    def declared_gates(self) -> list[Gate]:
        """The gates that the tables `[gates."/path"]` declare."""
        return [gate_of(path, values) for path, values in self.gates.items()]

    @property
    def declared_limits(self) -> Limits:
        """All limits that these settings declare."""
        return self.concurrency_policy.limits().with_more(self.named_limits)

    @property
    def is_on_loopback(self) -> bool:
        """Whether the server can be reached from this machine alone."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def is_exposed(self) -> bool:
        """Whether requests may come from other machines, as far as the settings say (SEC-04)."""
        return not self.is_on_loopback if self.exposed == "auto" else self.exposed == "true"

    @staticmethod
    def load(
        flags: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        file: str | Path | None = None,
    ) -> Settings:
        """Reads all sources; flags that are None were not given."""
        environ = os.environ if environ is None else environ
        settings = Settings()
        path = Path(file or environ.get("HOLDBEAT_CONFIG") or FILE)
        if file or environ.get("HOLDBEAT_CONFIG") or path.is_file():
            settings = settings._with(_read(path), lambda name: str(path))
        settings = settings._with(_from_environment(environ), lambda name: f"environment {PREFIX}{name.upper()}")
        return settings.with_flags(flags or {})

    def with_changes(self, **changes: Any) -> Settings:
        """The same settings with some of them replaced by code, checked alike."""
        return self._with(changes, lambda name: "code")._checked_together()

    def with_flags(self, flags: Mapping[str, Any]) -> Settings:
        """The same settings with some of them replaced by flags, checked alike."""
        return self._with(flags, lambda name: f"--{name.replace('_', '-')}")._checked_together()

    def _with(self, changes: Mapping[str, Any], origin: Callable[[str], str]) -> Settings:
        chosen = {name: value for name, value in changes.items() if value is not None}
        meant = _with_preset(chosen, origin)
        checked = {name: _checked(name, value, origin(name)) for name, value in meant.items()}
        origins = {**self.origins, **{name: origin(name) for name in checked}}
        return dataclasses.replace(self, **checked, origins=origins)

    def _checked_together(self) -> Settings:
        self.lease_terms  # noqa: B018  (refuses heartbeat ≥ lease)
        self.concurrency_policy  # noqa: B018
        return self


_FIELDS = {entry.name: entry for entry in dataclasses.fields(Settings) if entry.name != "origins"}

_BOUNDS: dict[str, tuple[float, float]] = {
    "port": (0, 65535),
    "metrics_port": (0, 65535),
    "slots": (0, 4096),
    "http_slots": (0, 4096),
    "lease_s": (0.05, 86_400),
    "heartbeat_s": (0.01, 86_400),
    "grace_s": (0, 86_400),
    "recover_s": (0.05, 3600),
    "shutdown_grace_s": (0, 86_400),
    "direct_wait_s": (0, 86_400),
    "reservation_s": (1, 86_400),
    "horizon_s": (0.1, 3600),
    "trigger_batch": (1, 100_000),
    "aging_s": (0, 31_536_000),
    "starved_s": (1, 86_400),
    "direct_burst": (0, 1_000_000),
    "affinity_wait_s": (0, 86_400),
    "affinity_run": (1, 1_000_000),
    "retention_days": (0, 36_500),
    "suspend_s": (0, 3600),
}


def _with_preset(chosen: Mapping[str, Any], origin: Callable[[str], str]) -> dict[str, Any]:
    """Replaces `preset` by the lease settings that it stands for."""
    values = dict(chosen)
    preset = values.pop("preset", None)
    if preset is None:
        return values
    if preset not in PRESETS:
        raise SettingsError(
            f"preset {preset!r} ({origin('preset')}) is not known. Choose one of {', '.join(PRESETS)}.", field="preset"
        )
    terms = PRESETS[preset]
    return {"lease_s": terms.lease_s, "heartbeat_s": terms.heartbeat_s, "grace_s": terms.grace_s, **values}


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise SettingsError(f"The settings file {path} cannot be read: {error.strerror}.", field=str(path)) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"The settings file {path} is not valid TOML: {error}.", field=str(path)) from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name[len(PREFIX) :].lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name not in _NOT_SETTINGS and not name.startswith("HOLDBEAT_TEST_")
    }


def _checked(name: str, value: Any, origin: str) -> Any:
    """A value of the right kind and within its bounds, or a refusal that names the setting."""
    if name not in _FIELDS:
        near = get_close_matches(name, [*_FIELDS, "preset"], 1)
        if name.lower() in OLD_SETTINGS:
            hint = f" It is called {OLD_SETTINGS[name.lower()]} here."
        elif near:
            hint = f" Did you mean {near[0]}?"
        else:
            hint = f" Settings are: {', '.join(_FIELDS)}."
        raise SettingsError(f"There is no setting named {name} ({origin}).{hint}", field=name)
    default = _FIELDS[name].default
    try:
        if name == "direct_routes":
            return _routes(value)
        if name == "limits":
            return _tables(value, "[limits.NAME]", limit_of)
        if name == "gates":
            return _tables(value, '[gates."/path"]', gate_of)
        if name in ("outbound_allow", "allowed_hosts"):
            return _names(value)
        if isinstance(default, bool):
            return _truth(value)
        if name in _WHOLE:
            return _bounded(name, _whole(value))
        if isinstance(default, int | float):
            return _bounded(name, _number(value))
        if name == "exposed":
            return _exposure(value)
        if not isinstance(value, str) or not value.strip():
            raise ValueError("it must be text")
        if name == "log_level" and value not in ("debug", "info", "warning", "error"):
            raise ValueError("choose debug, info, warning or error")
        if name == "log_format" and value not in ("text", "json"):
            raise ValueError("choose text or json")
        return value
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{name} = {value!r} ({origin}) is not possible: {error}.", field=name) from error


def _exposure(value: Any) -> str:
    text = str(value).lower()
    if text not in ("true", "false", "auto"):
        raise ValueError("choose true, false or auto")
    return text


_WHOLE = ("port", "slots", "http_slots", "trigger_batch", "metrics_port")


def _whole(value: Any) -> int:
    if isinstance(value, int):
        return value
    try:
        return int(str(value))
    except ValueError:
        raise ValueError("it must be a whole number") from None


def _number(value: Any) -> float:
    try:
        return float(value)
    except (ValueError, TypeError):
        raise ValueError("it must be a number") from None


def _bounded(name: str, value: float) -> float:
    if isinstance(value, bool):
        raise ValueError("it must be a number")
    low, high = _BOUNDS[name]
    if not low <= value <= high:
        raise ValueError(f"it must lie between {low:g} and {high:g}")
    return value


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    match str(value).strip().lower():
        case "1" | "true" | "yes" | "on":
            return True
        case "0" | "false" | "no" | "off" | "":
            return False
    raise ValueError("say true or false")


def _names(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    if not all(isinstance(part, str) for part in parts):
        raise ValueError("it must be a list of names")
    return tuple(part.strip() for part in parts if part.strip())


def _routes(value: Any) -> dict[str, DirectRoute]:
    """A map from path to job type or to {type, bare}, as a TOML table, JSON, or `/path=type,/other=type`."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("{"):
            value = json.loads(text)
        else:
            value = dict(part.split("=", 1) for part in text.split(",") if part.strip())
    return {str(path).strip(): _route(str(path).strip(), entry) for path, entry in dict(value).items()}


def _route(path: str, entry: Any) -> DirectRoute:
    if isinstance(entry, DirectRoute):
        return entry
    fields = dict(entry) if isinstance(entry, Mapping) else {"type": entry}
    type_, bare = fields.pop("type", None), fields.pop("bare", False)
    if not path.startswith("/") or not isinstance(type_, str) or not type_.strip():
        raise ValueError("each route is a path that begins with / and the name of a job type")
    if fields or not isinstance(bare, bool):
        raise ValueError('a route is written "/path" = "type" or "/path" = {type = "type", bare = true}')
    return DirectRoute(type_.strip(), bare)


def _tables(value: Any, form: str, check: Callable[[str, Mapping[str, Any]], Any]) -> dict[str, dict[str, Any]]:
    """Limits or gates by name, as TOML tables or JSON, each checked."""
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, Mapping) or not all(isinstance(entry, Mapping) for entry in value.values()):
        raise ValueError(f"write a table {form} for each of them")
    tables = {str(name): dict(entry) for name, entry in value.items()}
    try:
        for name, entry in tables.items():
            check(name, entry)
    except Invalid as error:
        raise ValueError(str(error).rstrip(".")) from None
    return tables
