"""The checks of doctor: each looks at one thing and says how it is and what to do about it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from holdbeat.cli.output import span
from holdbeat.domain.clock import SystemClock
from holdbeat.domain.errors import HoldbeatError
from holdbeat.observe.readiness import TRIGGER_LAG_MAX_S
from holdbeat.observe.wording import counted
from holdbeat.store import meta
from holdbeat.store.access.api_keys import any_key_exists
from holdbeat.store.firing.upcoming import database_time
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.maintenance.inspection import schema_state, server_version
from holdbeat.store.postgres.open_reader import hidden_sessions
from holdbeat.store.reads.event_log import last_event_at
from holdbeat.store.reads.gauges import trigger_lag_s
from holdbeat.store.reads.needs_attention import troubled_schedules, unknown_zones
from holdbeat.store.reads.stats import job_counts
from holdbeat.store.reads.workers import fires_schedules, live_workers
from holdbeat.store.recovery.recover import find_trouble, recovery_units
from holdbeat.store.sqlite.damage_record import record_path, recorded_damage

LITTLE_SPACE = 1024**3
NO_SPACE = 100 * 1024**2
SKEW_WARNING_S = 2.0
SKEW_WRONG_S = 30.0


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    state: State
    detail: str
    remedy: str = ""


Finding = tuple[State, str] | tuple[State, str, str]
"""How a thing is, in a word and in a sentence, and what to do about it."""
OK, WARNING, WRONG = State.OK, State.WARNING, State.WRONG


def checks_of(settings: Any, store: Any, *, quick: bool = False) -> tuple[list[Check], dict[str, str]]:
    """All checks of an opened store, and versions that only it knows."""
    is_file = hasattr(store, "integrity_problems")
    finders: dict[str, Callable[[Any, Any], Finding]] = {
        # Before anything is written: a damaged file is not written to.
        **({"integrity": _integrity} if is_file and not quick else {}),
        **({"damage": _damage} if is_file else {}),
        "schema": _schema,
        "write": _write,
        "clock": _clock,
        "workers": _workers,
        "schedules": _schedules,
        "slots": _slots,
        "recovery": _recovery,
        "access": _access,
        "readers": _readers,
        **({"disk": _disk, "locks": _locks} if is_file else {}),
    }
    checks: list[Check] = []
    for name, find in finders.items():
        if name == "write" and any(check.name == "integrity" and check.state is WRONG for check in checks):
            continue
        try:
            checks.append(Check(name, *find(settings, store)))
        except HoldbeatError as error:
            checks.append(Check(name, WRONG, error.detail))
        except OSError as error:
            checks.append(Check(name, WRONG, str(error), "Check the rights of this user on the store's folder."))
    if is_file:
        return checks, {}
    pooler = {"pooler": "yes; other processes are noticed by polling"} if store.is_pooled else {}
    return checks, {"postgresql": store.read_sync(server_version), **pooler}


def _schema(settings: Any, store: Any) -> Finding:
    state = schema_state(settings.store)
    if state.pending:
        return WRONG, f"{counted(len(state.pending), 'migration')} pending.", "Run holdbeat migrate."
    return OK, f"{state.engine}, version {state.version}"


def _write(settings: Any, store: Any) -> Finding:
    began = store.clock.monotonic()
    store.write_sync(meta.put, "doctor", "1")
    took_s = store.clock.monotonic() - began
    if took_s > 1:
        return WARNING, f"A commit took {span(took_s)}.", "Look at the disk, and at who else writes."
    return OK, f"A commit took {1000 * took_s:.1f} ms."


def _clock(settings: Any, store: Any) -> Finding:
    skew_s = (store.read_sync(database_time) - SystemClock().now()).total_seconds()
    last = store.read_sync(last_event_at)
    ahead_s = 0.0 if last is None else (last - store.clock.now()).total_seconds()
    worst = max(abs(skew_s), ahead_s)
    if worst < SKEW_WARNING_S:
        return OK, f"This machine and the store differ by {abs(skew_s):.3f} s."
    difference = (
        f"The store's clock and this machine's differ by {span(abs(skew_s))}."
        if abs(skew_s) >= ahead_s
        else f"The newest event lies {span(ahead_s)} in the future: the clock has been set back."
    )
    return WARNING if worst < SKEW_WRONG_S else WRONG, difference, "Set the clocks by NTP."


def _workers(settings: Any, store: Any) -> Finding:
    alive = [worker for worker in store.read_sync(live_workers) if worker.slots or worker.http_slots]
    waiting = store.read_sync(job_counts)["QUEUED"]
    if alive:
        return OK, f"{len(alive)} alive, {counted(sum(worker.slots for worker in alive), 'slot')}"
    if waiting:
        wait = f"{counted(waiting, 'job')} {'waits' if waiting == 1 else 'wait'}"
        return WARNING, f"No worker is alive, and {wait}.", "Start holdbeat serve or holdbeat worker."
    return OK, "None is alive, and nothing waits."


def _slots(settings: Any, store: Any) -> Finding:
    """The limits in force, which all workers go by."""
    limits = store.read_sync(limits_in_force)
    slots = [f"{limit.name}={limit.slots}" for limit in limits if limit.slots is not None]
    return OK, ", ".join(slots) or "Nothing is limited."


def _schedules(settings: Any, store: Any) -> Finding:
    troubled = store.read_sync(troubled_schedules, limit=1000)
    zones = store.read_sync(unknown_zones)
    if not troubled and not zones:
        return _lateness(store)
    if not troubled:
        return WARNING, f"Schedules have a zone that is not known: {next(iter(zones.values()))}", _MEND_ZONES
    more = f" So are {len(troubled) - 1} more." if len(troubled) > 1 else ""
    return WARNING, f"Schedule {troubled[0].name} cannot be planned: {troubled[0].trouble}{more}", _MEND_ZONES


_MEND_ZONES = "Bring the zone data up to date (package tzdata), or edit the schedule: holdbeat schedules edit NAME."


def _lateness(store: Any) -> Finding:
    lag_s = store.read_sync(trigger_lag_s)
    if lag_s <= TRIGGER_LAG_MAX_S:
        return OK, "All that are enabled can be planned."
    due = f"Schedules have been due for {span(lag_s)}"
    if store.read_sync(fires_schedules):
        return WARNING, f"{due}.", "Look at the log of the server: its trigger is behind or stopped."
    return (
        WARNING,
        f"{due}, and no process that fires schedules is alive.",
        "Start holdbeat serve; holdbeat worker fires none.",
    )


def _recovery(settings: Any, store: Any) -> Finding:
    trouble = store.read_sync(find_trouble, settings.lease_terms, store.known_dead())
    count = len(recovery_units(trouble))
    if not count:
        return OK, "Nothing to repair."
    return WARNING, f"{counted(count, 'item')} to repair.", "A live server repairs them; or: holdbeat recover."


def _access(settings: Any, store: Any) -> Finding:
    has_key = store.read_sync(any_key_exists)
    if settings.is_on_loopback:
        return OK, f"{settings.host}:{settings.port}, reachable from this machine only"
    if has_key:
        return OK, f"{settings.host}:{settings.port}, protected by API keys"
    detail = f"host = {settings.host} can be reached by others, and there is no API key."
    return WRONG, detail, "Run holdbeat keys create --name NAME --scope admin, or set host to 127.0.0.1."


def _disk(settings: Any, store: Any) -> Finding:
    usage = shutil.disk_usage(os.path.dirname(store.path) or ".")
    size = os.path.getsize(store.path)
    detail = f"{usage.free / 1024**3:.1f} GiB free; the store has {size / 1024**2:.1f} MiB"
    if usage.free < NO_SPACE:
        return WRONG, detail, "Free some space: writes are about to fail."
    if usage.free < LITTLE_SPACE or usage.free < size:
        return WARNING, detail, "Free some space, or prune with a shorter retention_days."
    return OK, detail


def _readers(settings: Any, store: Any) -> Finding:
    """Whether a reader keeps a transaction open."""
    reader = store.read_sync(lambda tx: tx.open_reader())
    if reader is not None:
        return WARNING, reader.detail, reader.remedy
    if hidden := store.read_sync(hidden_sessions):
        note = f"what {counted(hidden, 'session')} of other users {'does' if hidden == 1 else 'do'} is hidden from it"
        return OK, f"No transaction of this user stays open; {note} (GRANT pg_monitor shows it)."
    log_bytes = store.log_bytes()
    log_size = "" if log_bytes is None else f" The write-ahead log has {log_bytes / 1024**2:.1f} MiB."
    return OK, f"No transaction stays open.{log_size}"


def _locks(settings: Any, store: Any) -> Finding:
    """Whether the kernel's locks work where the store lies; on some network disks they do not."""
    probe = f"{store.path}-run/doctor-{os.getpid()}"
    descriptor = os.open(probe, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process, because a process is never in its own way.
        tried = subprocess.run([sys.executable, "-ISc", _TRY_LOCK, probe], stderr=subprocess.DEVNULL, check=False)
    finally:
        os.close(descriptor)
        os.unlink(probe)
    if tried.returncode == 0:
        return WRONG, "File locks do not hold on this disk.", "Put the store on a local disk, or use PostgreSQL."
    dead = store.known_dead()
    return OK, "File locks hold." + (f" {len(dead)} dead workers are known." if dead else "")


_TRY_LOCK = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def _integrity(settings: Any, store: Any) -> Finding:
    problems = store.integrity_problems()
    if problems:
        detail = f"The file is damaged: {' '.join(problems[0].split())}"
        return WRONG, detail, "Restore the last backup: holdbeat restore."
    return OK, "SQLite's full integrity check finds no fault."


def _damage(settings: Any, store: Any) -> Finding:
    """Damage that running processes saw: SQLite finds no fault in a file that has lost its last transactions."""
    records = recorded_damage(store.path)
    if not records:
        return OK, "No process has seen the file damaged, or used by a second SQLite library."
    return (
        WRONG,
        f"Jobs may be missing. {records[0]}" + (f" So said {len(records) - 1} more." if len(records) > 1 else ""),
        "Restore the last backup (holdbeat restore), or compare the jobs with what was submitted and then delete "
        f"{record_path(store.path)}.",
    )
