"""Webhooks without a network: signatures, attempts, and hosts that are left alone."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from holdbeat.domain import events
from holdbeat.domain import webhook as wh
from holdbeat.domain.clock import SystemClock
from holdbeat.domain.errors import Invalid
from holdbeat.domain.webhook import (
    FAILURES_TO_OPEN,
    MAX_RECEIVERS,
    CircuitBreaker,
    Delivery,
    DeliveryStatus,
    Webhook,
    judge_attempt,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECRET = wh.new_secret(bytes(range(32)))
OTHER = wh.new_secret(b"x" * 24)


def at(amount_s: float) -> datetime:
    return NOW + timedelta(seconds=amount_s)


def delivery(**changes: Any) -> Delivery:
    return Delivery("0190-id", wh.RUN_FAILED, "https://example.com/", {"type": wh.RUN_FAILED}, NOW, **changes)


# Signing


@pytest.mark.rule("WEB-02")
def test_an_independent_verifier_accepts_our_signature() -> None:
    message = {"type": wh.RUN_COMPLETED, "timestamp": "2026-03-01T12:00:00.000Z", "data": {"job": {"id": "ü", "n": 1}}}
    body = wh.encode_payload(message)
    headers = wh.signed_headers([SECRET], message_id="msg", now=SystemClock().now(), body=body)
    assert Verifier(SECRET).verify(body, headers) == message


@pytest.mark.rule("WEB-02")
def test_our_signature_is_the_one_that_the_independent_signer_makes() -> None:
    body = b'{"a":"\xc3\xa9"}'
    ours = wh.sign(SECRET, message_id="msg", timestamp=int(NOW.timestamp()), body=body)
    assert ours == Verifier(SECRET).sign("msg", NOW, body.decode())


@pytest.mark.rule("WEB-02")
@pytest.mark.parametrize("change", ["body", "id", "timestamp", "secret"])
def test_a_message_that_was_changed_does_not_verify(change: str) -> None:
    body = b'{"a":1}'
    headers = wh.signed_headers([SECRET], message_id="msg", now=SystemClock().now(), body=body)
    if change == "body":
        body = b'{"a":2}'
    elif change == "id":
        headers["webhook-id"] = "other"
    elif change == "timestamp":
        headers["webhook-timestamp"] = str(int(headers["webhook-timestamp"]) + 1)
    with pytest.raises(WebhookVerificationError):
        Verifier(OTHER if change == "secret" else SECRET).verify(body, headers)


@pytest.mark.rule("WEB-02")
def test_for_a_day_after_a_rotation_both_secrets_sign_and_then_the_new_one_alone() -> None:
    hook = wh.rotated(Webhook("w", "https://example.com/", SECRET, NOW), OTHER, now=NOW)
    assert wh.signing_secrets(hook, now=at(0)) == (OTHER, SECRET)
    assert wh.signing_secrets(hook, now=at(24 * 3600 - 0.001)) == (OTHER, SECRET)
    assert wh.signing_secrets(hook, now=at(24 * 3600)) == (OTHER,)
    headers = wh.signed_headers(wh.signing_secrets(hook, now=NOW), message_id="m", now=SystemClock().now(), body=b"{}")
    assert headers["webhook-signature"].count("v1,") == 2
    for secret in (SECRET, OTHER):
        assert Verifier(secret).verify(b"{}", headers) == {}


@pytest.mark.rule("WEB-02")
def test_a_second_rotation_within_the_day_drops_the_oldest_secret() -> None:
    third = wh.new_secret(b"y" * 24)
    hook = wh.rotated(Webhook("w", "https://example.com/", SECRET, NOW), OTHER, now=NOW)
    assert wh.signing_secrets(wh.rotated(hook, third, now=at(60)), now=at(61)) == (third, OTHER)


@pytest.mark.rule("WEB-02", "DEC-009")
def test_the_webhook_id_stays_over_retries_and_the_timestamp_is_the_attempts_own() -> None:
    first = wh.signed_headers([SECRET], message_id="m", now=NOW, body=b"{}")
    later = wh.signed_headers([SECRET], message_id="m", now=at(5), body=b"{}")
    assert first["webhook-id"] == later["webhook-id"]
    assert int(later["webhook-timestamp"]) - int(first["webhook-timestamp"]) == 5


@given(st.binary(min_size=24, max_size=64), st.binary(max_size=200))
def test_every_secret_that_we_make_is_one_that_we_accept(key: bytes, body: bytes) -> None:
    secret = wh.check_secret(wh.new_secret(key))
    assert base64.b64decode(secret.removeprefix("whsec_")) == key
    assert wh.sign(secret, message_id="m", timestamp=1, body=body).startswith("v1,")


@pytest.mark.rule("WEB-02")
@pytest.mark.parametrize(
    "secret", ["", "whsec_", "abc", "whsec_!!!!", "whsec_" + base64.b64encode(b"x" * 23).decode(), SECRET[6:]]
)
def test_a_secret_that_the_scheme_does_not_know_is_refused(secret: str) -> None:
    with pytest.raises(Invalid) as refusal:
        wh.check_secret(secret)
    assert refusal.value.field == "secret"
    assert secret == "" or secret not in refusal.value.detail.split()


def test_a_secret_made_from_too_little_randomness_is_refused() -> None:
    with pytest.raises(Invalid):
        wh.new_secret(b"x" * 23)


def test_secrets_are_not_shown_when_a_webhook_is_printed() -> None:
    hook = Webhook("w", "https://example.com/", SECRET, NOW, previous_secret=OTHER)
    assert SECRET not in repr(hook)
    assert OTHER not in repr(hook)


# Subscriptions


@pytest.mark.rule("WEB-01")
def test_an_event_that_does_not_exist_is_refused() -> None:
    assert wh.check_events(["job.cancelled", "group.finished", "job.cancelled"]) == (
        "job.cancelled",
        "group.finished",
    )
    with pytest.raises(Invalid) as refusal:
        wh.check_events(["job.exploded"])
    assert refusal.value.field == "events"


# Attempts


@pytest.mark.rule("DEC-009")
def test_a_delivery_is_tried_once_and_retried_three_times_after_1_2_and_4_seconds() -> None:
    *retried, last = [judge_attempt(attempts=n, now=NOW, jitter=1.0, status_code=500) for n in (1, 2, 3, 4)]
    assert [verdict.next_attempt_at for verdict in retried] == [at(1), at(2), at(4)]
    assert {verdict.status for verdict in retried} == {DeliveryStatus.PENDING}
    assert (last.status, last.next_attempt_at, last.error) == (DeliveryStatus.FAILED, None, "HTTP 500")


@pytest.mark.rule("DEC-009")
def test_the_jitter_handed_in_scales_the_wait() -> None:
    assert [wh.backoff_s(n, 0.5) for n in (1, 2, 3)] == [0.5, 1, 2]
    verdict = judge_attempt(attempts=2, now=NOW, jitter=1.25, error="reset")
    assert (verdict.next_attempt_at, verdict.error) == (at(2.5), "reset")


@pytest.mark.rule("WEB-03")
@pytest.mark.parametrize("status_code", [200, 201, 202, 204, 299])
def test_any_2xx_delivers(status_code: int) -> None:
    verdict = judge_attempt(attempts=4, now=NOW, jitter=1, status_code=status_code, retry_after="60")
    assert (verdict.status, verdict.next_attempt_at, verdict.error) == (DeliveryStatus.DELIVERED, None, None)


@pytest.mark.rule("WEB-03")
@pytest.mark.parametrize("status_code", [101, 300, 301, 302, 303, 304, 307, 308, 400, 404, 429, 500, 503, 599])
def test_anything_else_is_a_failure_that_is_retried(status_code: int) -> None:
    verdict = judge_attempt(attempts=1, now=NOW, jitter=1, status_code=status_code)
    assert (verdict.status, verdict.next_attempt_at) == (DeliveryStatus.PENDING, at(1))
    assert not verdict.disables_webhook


@pytest.mark.rule("WEB-03")
def test_410_ends_the_delivery_at_once_and_disables_the_subscription() -> None:
    verdict = judge_attempt(attempts=1, now=NOW, jitter=1, status_code=410, retry_after="10")
    assert (verdict.status, verdict.disables_webhook) == (DeliveryStatus.FAILED, True)
    assert verdict.next_attempt_at is None


@pytest.mark.rule("SEC-04", "WEB-03")
def test_a_forbidden_target_is_not_tried_again() -> None:
    verdict = judge_attempt(attempts=1, now=NOW, jitter=1, error="127.0.0.1 is local", is_forbidden=True)
    assert (verdict.status, verdict.error) == (DeliveryStatus.FAILED, "127.0.0.1 is local")
    assert not verdict.disables_webhook


@pytest.mark.rule("WEB-03")
@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("0", 0),
        ("7", 7),
        (" 120 ", 120),
        ("3600", 3600),
        ("3601", 3600),
        ("999999999", 3600),
        ("9" * 5000, 3600),
        ("0" * 5000, 0),
        ("Sun, 01 Mar 2026 12:01:30 GMT", 90),
        ("Sun, 01 Mar 2026 12:01:30 -0000", 90),
        ("Sun, 01 Mar 2020 12:00:00 GMT", 0),
        ("Sun, 01 Mar 2099 12:00:00 GMT", 3600),
        (None, None),
        ("", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("soon", None),
        ("Sun, 99 Mar 2026 12:00:00 GMT", None),
        ("Sun, 01 Mar 99999 12:00:00 GMT", None),
    ],
)
def test_retry_after_is_honoured_up_to_an_hour(header: str | None, wait_s: float | None) -> None:
    assert wh.parse_retry_after(header, now=NOW) == wait_s
    verdict = judge_attempt(attempts=1, now=NOW, jitter=1, status_code=429, retry_after=header)
    assert verdict.next_attempt_at == at(max(1, wait_s or 0))


@given(st.text(max_size=80))
def test_no_retry_after_can_break_or_stall_us(header: str) -> None:
    wait_s = wh.parse_retry_after(header, now=NOW)
    assert wait_s is None or 0 <= wait_s <= 3600


@pytest.mark.rule("DEC-009")
def test_a_replay_starts_afresh_under_the_same_id() -> None:
    failed = delivery(status=DeliveryStatus.FAILED, attempts=4, last_error="HTTP 500", last_status_code=500)
    again = wh.replayed(failed, now=at(60))
    assert (again.id, again.status, again.attempts, again.next_attempt_at) == (
        failed.id,
        DeliveryStatus.PENDING,
        0,
        at(60),
    )


def test_the_message_is_the_same_bytes_whenever_it_is_encoded() -> None:
    message = {"type": events.GROUP_FINISHED, "data": {"group": {"name": "日本"}}}
    assert wh.encode_payload(json.loads(wh.encode_payload(message))) == wh.encode_payload(message)


# The circuit breaker


def failing(breaker: CircuitBreaker, times: int, now: datetime = NOW) -> None:
    for _ in range(times):
        breaker.record("a:443", failed=True, now=now)


@pytest.mark.rule("WEB-03")
def test_five_failures_in_a_row_close_a_host_for_thirty_seconds_and_no_other() -> None:
    breaker = CircuitBreaker()
    failing(breaker, FAILURES_TO_OPEN - 1)
    assert breaker.wait_until("a:443", now=NOW) is None
    failing(breaker, 1)
    assert breaker.wait_until("a:443", now=NOW) == at(30)
    assert breaker.wait_until("a:443", now=at(29.999)) == at(30)
    assert breaker.wait_until("b:443", now=NOW) is None


@pytest.mark.rule("WEB-03")
def test_after_the_wait_one_probe_goes_and_the_others_wait_for_it() -> None:
    breaker = CircuitBreaker()
    failing(breaker, 5)
    assert breaker.wait_until("a:443", now=at(30)) is None
    assert breaker.wait_until("a:443", now=at(30)) == at(60)
    breaker.record("a:443", failed=False, now=at(31))
    assert breaker.wait_until("a:443", now=at(31)) is None
    assert breaker.wait_until("a:443", now=at(31)) is None


@pytest.mark.rule("WEB-03")
def test_a_probe_that_fails_closes_the_host_again_and_a_lost_one_does_not_block_it_for_ever() -> None:
    breaker = CircuitBreaker()
    failing(breaker, 5)
    assert breaker.wait_until("a:443", now=at(30)) is None
    failing(breaker, 1, now=at(35))
    assert breaker.wait_until("a:443", now=at(36)) == at(65)
    assert breaker.wait_until("a:443", now=at(65)) is None  # this probe never reports back
    assert breaker.wait_until("a:443", now=at(95)) is None


@pytest.mark.rule("WEB-03")
def test_a_success_in_between_resets_the_failures() -> None:
    breaker = CircuitBreaker()
    failing(breaker, 4)
    breaker.record("a:443", failed=False, now=NOW)
    failing(breaker, 4)
    assert breaker.wait_until("a:443", now=NOW) is None


@pytest.mark.rule("WEB-03")
@pytest.mark.parametrize(
    ("status_code", "blamed"),
    [(None, True), (500, True), (503, True), (429, True), (404, False), (302, False)],
)
def test_only_trouble_of_the_whole_host_counts_against_it(status_code: int | None, blamed: bool) -> None:
    assert judge_attempt(attempts=1, now=NOW, jitter=1, status_code=status_code).blames_receiver is blamed
    assert judge_attempt(attempts=4, now=NOW, jitter=1, status_code=status_code).blames_receiver is blamed


def test_the_breaker_remembers_a_bounded_number_of_receivers() -> None:
    breaker = CircuitBreaker()
    for number in range(MAX_RECEIVERS + 100):
        breaker.record(f"host-{number}:80", failed=True, now=at(number))
    assert len(breaker._receivers) == MAX_RECEIVERS
