"""The password in the URL of a store is shown nowhere, however it is spelled."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdbeat.domain.errors import SettingsError
from holdbeat.domain.store_url import check_postgres_url, without_password

pytestmark = pytest.mark.rule("SEC-07")
URLS = [
    "postgresql+psycopg://u:hunter2@127.0.0.1:1/db",
    "mysql://u:hunter2@127.0.0.1/db",
    "postgresql://u:hun/ter2#x@127.0.0.1:1/db",
    "postgresql://u:hunter2%zz@127.0.0.1:1/db",
    "postgresql://u:hun[ter2@127.0.0.1:1/db",
    "postgresql://u:hun@ter2@127.0.0.1:1/db",
    "postgresql://u:hunter2@127.0.0.1:port/db",
    "postgresql://u@127.0.0.1:1/db?password=hunter2&x=1",
]


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_shown_without_its_password(url: str) -> None:
    output = without_password(url)
    assert "hun" not in output
    assert "ter2" not in output
    assert "127.0.0.1" in output


@pytest.mark.parametrize("url", URLS)
def test_a_command_prints_neither_the_password_nor_a_traceback(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdbeat", "doctor", "--store", url], capture_output=True, text=True, timeout=60
    )
    printed = done.stdout + done.stderr
    assert done.returncode != 0
    for part in ("hun", "ter2", "Traceback"):
        assert part not in printed, printed


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///holdbeat",
        "postgresql://u:p%2Fw@h:5432/db?sslmode=require",
        "postgresql://u@[::1]:5432/db",
        "postgresql://h1:5432,h2:5433/db",
        "postgresql://u:p@/db?host=/run/postgresql",
    ],
)
def test_a_url_that_postgresql_reads_is_accepted(url: str) -> None:
    check_postgres_url(url)


def test_a_url_with_an_unescaped_password_is_refused_in_words_that_help() -> None:
    with pytest.raises(SettingsError, match="percent-encoded"):
        check_postgres_url("postgresql://u:hun/ter2@host/db")
