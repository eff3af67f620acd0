"""Lease terms: nobody can set up leases that end before they are renewed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.errors import SettingsError
from holdbeat.domain.lease import PRESETS, LeaseTerms

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.rule("LEASE-01")
def test_the_default_is_300_30_60() -> None:
    assert LeaseTerms() == LeaseTerms(lease_s=300, heartbeat_s=30, grace_s=60)


@pytest.mark.rule("LEASE-01")
def test_the_presets_are_those_of_the_contract() -> None:
    assert {name: (terms.heartbeat_s, terms.lease_s) for name, terms in PRESETS.items()} == {
        "development": (10, 60),
        "production": (30, 300),
        "high-reliability": (15, 180),
    }


@pytest.mark.rule("LEASE-01")
@given(lease_s=st.floats(0.001, 1e6), extra_s=st.floats(0, 1e6))
def test_a_heartbeat_as_long_as_the_lease_is_refused(lease_s: float, extra_s: float) -> None:
    with pytest.raises(SettingsError) as refusal:
        LeaseTerms(lease_s=lease_s, heartbeat_s=lease_s + extra_s)
    assert refusal.value.field == "heartbeat_s"


@pytest.mark.rule("LEASE-01")
@pytest.mark.parametrize(
    ("lease_s", "heartbeat_s", "grace_s"),
    [
        (0, 30, 60),
        (-1, 30, 60),
        (300, 0, 60),
        (300, -5, 60),
        (300, 30, -1),
        (float("nan"), 30, 60),
        (300, float("nan"), 60),
        (300, 30, float("nan")),
        (float("inf"), 30, 60),
    ],
)
def test_impossible_terms_are_refused(lease_s: float, heartbeat_s: float, grace_s: float) -> None:
    with pytest.raises(SettingsError):
        LeaseTerms(lease_s, heartbeat_s, grace_s)


@pytest.mark.rule("LEASE-01", "REC-01")
def test_a_lease_is_lost_only_after_its_end_and_the_grace() -> None:
    terms = LeaseTerms()
    end = terms.expiry(NOW)
    assert end == NOW + timedelta(seconds=300)
    assert not terms.is_lost(end, NOW + timedelta(seconds=360))
    assert terms.is_lost(end, NOW + timedelta(seconds=360, milliseconds=1))


@pytest.mark.rule("LEASE-01")
@pytest.mark.parametrize(
    ("timeout_s", "cancel_grace_s", "lease_s"),
    [
        (None, 10.0, 300),
        (60.0, 10.0, 70),
        (60.0, None, 300),
        (1.0, 0.0, 60),
        (290.0, 10.0, 300),
        (3600.0, 10.0, 300),
    ],
)
def test_a_lease_does_not_outlast_the_limit_of_its_run_but_is_never_shorter_than_two_heartbeats(
    timeout_s: float | None, cancel_grace_s: float | None, lease_s: float
) -> None:
    assert LeaseTerms().expiry(NOW, timeout_s, cancel_grace_s) == NOW + timedelta(seconds=lease_s)


@pytest.mark.rule("LEASE-01")
def test_a_short_lease_stays_as_short_as_it_was_set() -> None:
    assert LeaseTerms(lease_s=3, heartbeat_s=2).expiry(NOW, 1.0, 0.0) == NOW + timedelta(seconds=3)
