"""Webhooks: events and subscriptions, how a message is signed, and what follows an attempt to deliver it.

The invariant: a Delivery is given up only after its first attempt and three retries failed, or when the
receiver said that it is gone for good, or when its target may never be called; putting it off because its
host is in trouble costs it nothing. Its id, and so its `webhook-id`, is the same over all attempts.

A circuit breaker leaves a receiver alone that keeps failing (WEB-03): after five failures in a row nobody calls its URL
for 30 seconds, and then one call at a time tries whether it is back.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from holdbeat.domain import events
from holdbeat.domain.clock import to_millis
from holdbeat.domain.errors import Invalid

RUN_COMPLETED: Final = "job.run.completed"
RUN_FAILED: Final = "job.run.failed"
RUN_SKIPPED: Final = "job.run.skipped"
JOB_PERMANENTLY_FAILED: Final = "job.permanently_failed"

OPERATIONAL_EVENTS: Final = (
    events.ZOMBIE_FOUND,
    events.LEASE_EXPIRED,
    events.STALE_RESULT,
    events.CLOCK_JUMPED,
    events.SCHEDULE_MISSED,
    events.DUPLICATE_REFUSED,
    events.WEBHOOK_DISABLED,
    events.LIMIT_CHANGED,
    events.QUEUE_STARVED,
)
"""Events of the log that are sent to subscribers unchanged, and counted. To add one, add its name."""

WEBHOOK_EVENTS: Final = (
    RUN_COMPLETED,
    RUN_FAILED,
    RUN_SKIPPED,
    events.JOB_CANCELLED,
    JOB_PERMANENTLY_FAILED,
    events.GROUP_FINISHED,
    *OPERATIONAL_EVENTS,
)

ATTEMPT_DEADLINE_S: Final = 15.0
MAX_ATTEMPTS: Final = 4
MAX_RETRY_AFTER_S: Final = 3600.0
ROTATION_S: Final = 24 * 3600.0
SECRET_PREFIX: Final = "whsec_"
GONE: Final = 410
TEST_EVENT: Final = "webhook.test"
"""A message that a person sends to see whether messages arrive. No subscription can leave it out."""
LEFT_ALONE: Final = "Held back: this URL failed before."


class DeliveryStatus(StrEnum):
    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"


@dataclass(slots=True)
class Webhook:
    """A subscription. No events means all of them."""

    id: str
    url: str
    secret: str = field(repr=False)
    created_at: datetime
    events: tuple[str, ...] = ()
    previous_secret: str | None = field(default=None, repr=False)
    rotated_at: datetime | None = None
    enabled: bool = True
    disabled_reason: str | None = None
    version: int = 1


@dataclass(slots=True)
class Delivery:
    """One webhook message on its way; without a `webhook_id` it goes to the `webhook_url` of its job."""

    id: str
    event: str
    url: str
    payload: dict[str, Any]
    created_at: datetime
    webhook_id: str | None = None
    job_id: str | None = None
    group_id: str | None = None
    status: DeliveryStatus = DeliveryStatus.PENDING
    attempts: int = 0
    next_attempt_at: datetime | None = None
    delivered_at: datetime | None = None
    last_status_code: int | None = None
    last_error: str | None = None
    locked_by: str | None = None
    locked_until: datetime | None = None

    @property
    def waits_because(self) -> str | None:
        """Why it is not sent before `next_attempt_at`; None if it has ended or waits for nothing."""
        if self.status is not DeliveryStatus.PENDING or self.last_error is None:
            return None
        if self.last_error == LEFT_ALONE:
            return f"{LEFT_ALONE} Waiting costs no attempt."
        return f"Attempt {self.attempts} of {MAX_ATTEMPTS} failed: {self.last_error}"

    @property
    def waits_until(self) -> datetime | None:
        return self.next_attempt_at if self.waits_because else None


@dataclass(frozen=True, slots=True)
class AttemptVerdict:
    """The verdict on an attempt. PENDING comes with the time of the next one."""

    status: DeliveryStatus
    next_attempt_at: datetime | None = None
    error: str | None = None
    disables_webhook: bool = False
    blames_receiver: bool = False
    """The receiver is in trouble, not this message alone: the circuit breaker counts it."""


def host_of(url: str) -> str:
    """The receiver that a URL leads to, as `host:port` in lower case; empty if it cannot be told."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme.lower() == "https" else 80)
        return f"{parts.hostname}:{port}" if parts.hostname else ""
    except ValueError:
        return ""


def encode_payload(message: Mapping[str, Any]) -> bytes:
    """The bytes that are signed and sent."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def check_events(events: Iterable[str]) -> tuple[str, ...]:
    """The event filter of a subscription, each name once; refuses names that do not exist."""
    chosen = tuple(dict.fromkeys(events))
    for event in chosen:
        if event not in WEBHOOK_EVENTS:
            raise Invalid(
                f"There is no webhook event {event!r}; choose from {', '.join(WEBHOOK_EVENTS)}.",
                field="events",
            )
    return chosen


def backoff_s(attempts: int, jitter: float) -> float:
    """The wait after attempt number 1, 2, 3: 1, 2, 4 seconds times `jitter`, a factor near 1."""
    return 2.0 ** (max(attempts, 1) - 1) * jitter


def parse_retry_after(value: str | None, *, now: datetime, longest_s: float = MAX_RETRY_AFTER_S) -> float | None:
    """Seconds to wait, from 0 to the longest; None if the header is absent or cannot be understood."""
    text = (value or "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        # More digits than this are beyond the limit anyway, and int() refuses thousands of them.
        return longest_s if len(text.lstrip("0")) > 9 else min(float(text), longest_s)
    try:
        at = parsedate_to_datetime(text)
        wait_s = (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
    return min(max(wait_s, 0.0), longest_s)


def judge_attempt(
    *,
    attempts: int,
    now: datetime,
    jitter: float,
    status_code: int | None = None,
    error: str | None = None,
    retry_after: str | None = None,
    is_forbidden: bool = False,
) -> AttemptVerdict:
    """The verdict on attempt number `attempts` (this one included).

    It ended with a status code, or with an `error` and no answer; `is_forbidden` says that the target may not
    be called at all. Anything but 2xx is a failure: 3xx is not followed, 410 ends it at once.
    """
    if status_code is not None and 200 <= status_code < 300:
        return AttemptVerdict(DeliveryStatus.DELIVERED)
    reason = error or (f"HTTP {status_code}" if status_code is not None else "no answer")
    if is_forbidden:
        return AttemptVerdict(DeliveryStatus.FAILED, error=reason)
    if status_code == GONE:
        return AttemptVerdict(
            DeliveryStatus.FAILED, error="HTTP 410: the receiver is gone for good", disables_webhook=True
        )
    blames_receiver = status_code is None or status_code == 429 or status_code >= 500
    if attempts >= MAX_ATTEMPTS:
        return AttemptVerdict(DeliveryStatus.FAILED, error=reason, blames_receiver=blames_receiver)
    wait_s = max(backoff_s(attempts, jitter), parse_retry_after(retry_after, now=now) or 0.0)
    return AttemptVerdict(
        DeliveryStatus.PENDING, to_millis(now + timedelta(seconds=wait_s)), reason, blames_receiver=blames_receiver
    )


def replayed(delivery: Delivery, *, now: datetime) -> Delivery:
    """The Delivery sent again on request, with all its attempts before it and the same id."""
    return replace(
        delivery,
        status=DeliveryStatus.PENDING,
        attempts=0,
        next_attempt_at=now,
        delivered_at=None,
        locked_by=None,
        locked_until=None,
    )


def new_secret(random_bytes: bytes) -> str:
    """A secret made from the randomness handed in (24 to 64 bytes)."""
    if not 24 <= len(random_bytes) <= 64:
        raise Invalid("A webhook secret needs 24 to 64 random bytes.", field="secret")
    return SECRET_PREFIX + base64.b64encode(random_bytes).decode()


def check_secret(secret: str) -> str:
    """Refuses a secret that the scheme does not know."""
    _key(secret)
    return secret


def rotated(webhook: Webhook, secret: str, *, now: datetime) -> Webhook:
    """The subscription with a new secret; the one before it signs too for a day."""
    return replace(webhook, secret=check_secret(secret), previous_secret=webhook.secret, rotated_at=now)


def signing_secrets(webhook: Webhook, *, now: datetime) -> tuple[str, ...]:
    """The secrets that sign now, the newest first."""
    previous, rotated_at = webhook.previous_secret, webhook.rotated_at
    if previous is None or rotated_at is None or now >= rotated_at + timedelta(seconds=ROTATION_S):
        return (webhook.secret,)
    return (webhook.secret, previous)


def sign(secret: str, *, message_id: str, timestamp: int, body: bytes) -> str:
    """One signature of the Standard Webhooks scheme, version 1."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()


def signed_headers(secrets: Sequence[str], *, message_id: str, now: datetime, body: bytes) -> dict[str, str]:
    """The three headers of an attempt made `now`: the id stays, the timestamp is the attempt's own."""
    timestamp = int(now.timestamp())
    signatures = [sign(secret, message_id=message_id, timestamp=timestamp, body=body) for secret in secrets]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }


def _key(secret: str) -> bytes:
    try:
        if not secret.startswith(SECRET_PREFIX):
            raise ValueError("no prefix")
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        if not 24 <= len(key) <= 64:
            raise ValueError("length")
    except (ValueError, binascii.Error):
        raise Invalid(
            "A webhook secret is `whsec_` followed by 24 to 64 bytes in base64; leave it out to get one.",
            field="secret",
        ) from None
    return key


FAILURES_TO_OPEN: Final = 5
OPEN_S: Final = 30.0
MAX_RECEIVERS: Final = 1024


@dataclass(slots=True)
class _Receiver:
    failures: int
    open_until: datetime
    """Nobody may call before this time; in the past for a receiver that is merely under suspicion."""
    touched_at: datetime


class CircuitBreaker:
    """Remembers only receivers that failed lately. Time is handed in; it belongs to one event loop."""

    def __init__(self) -> None:
        self._receivers: dict[str, _Receiver] = {}

    def wait_until(self, url: str, *, now: datetime) -> datetime | None:
        """None if the receiver may be called now, else when to ask again.

        Once the wait is over, the first caller is the probe, and the others wait for as long again; so a probe that
        never reports back blocks nobody for ever.
        """
        state = self._receivers.get(url)
        if state is None or state.failures < FAILURES_TO_OPEN:
            return None
        if now < state.open_until:
            return state.open_until
        state.open_until = now + timedelta(seconds=OPEN_S)
        state.touched_at = now
        return None

    def record(self, url: str, *, failed: bool, now: datetime) -> None:
        """Takes note of how a call to the URL ended."""
        if not failed:
            self._receivers.pop(url, None)
            return
        state = self._receivers.setdefault(url, _Receiver(0, now, now))
        state.failures += 1
        state.touched_at = now
        if state.failures >= FAILURES_TO_OPEN:
            state.open_until = now + timedelta(seconds=OPEN_S)
        if len(self._receivers) > MAX_RECEIVERS:
            oldest = min(self._receivers, key=lambda known: self._receivers[known].touched_at)
            del self._receivers[oldest]
