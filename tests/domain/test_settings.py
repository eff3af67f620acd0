"""Settings: where they come from, which is stronger, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdbeat.domain.errors import SettingsError
from holdbeat.settings import DirectRoute, Settings

pytestmark = pytest.mark.rule("OPS-01")


def load(flags: dict[str, object] | None = None, file: Path | None = None, **environ: str) -> Settings:
    return Settings.load(
        flags, environ={f"HOLDBEAT_{name.upper()}": value for name, value in environ.items()}, file=file
    )


def toml(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text)
    return path


def test_without_any_source_the_defaults_are_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load()
    assert (settings.store, settings.host, settings.port, settings.slots) == (
        "sqlite:///holdbeat.db", "127.0.0.1", 7450, 1,
    )  # fmt: skip
    assert settings.concurrency == "resources:default=1,http=256" and settings.origins == {}


def test_flags_beat_the_environment_and_the_environment_beats_the_file(tmp_path: Path) -> None:
    file = toml(tmp_path, "slots = 2\nport = 2\naging_s = 2\n")
    settings = load({"slots": 4, "host": None}, file, slots="3", port="3")
    assert (settings.slots, settings.port, settings.aging_s) == (4, 3, 2)
    assert settings.origins == {
        "slots": "--slots",
        "port": "environment HOLDBEAT_PORT",
        "aging_s": str(file),
    }


def test_the_file_of_the_folder_is_read_and_another_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdbeat.toml").write_text("slots = 5")
    assert load().slots == 5
    other = toml(tmp_path, "slots = 6")
    assert load(config=str(other)).slots == 6
    with pytest.raises(SettingsError, match=r"missing\.toml"):
        load(config=str(tmp_path / "missing.toml"))


def test_a_file_that_is_not_toml_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"settings\.toml is not valid TOML"):
        load(file=toml(tmp_path, "slots = = 3"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slots", "many"), ("slots", "-1"), ("slots", "1.5"), ("port", "70000"), ("lease_s", "0"), ("lease_s", "nan"),
        ("retention_days", "-1"), ("allow_shell", "perhaps"), ("log_level", "loud"), ("log_format", "xml"),
        ("store", " "), ("concurrency", "resources:default=0x"), ("direct_routes", "story"), ("direct_routes", "{"),
    ],
)  # fmt: skip
def test_an_impossible_value_is_refused_with_the_name_of_its_setting(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        Settings.load(environ={f"HOLDBEAT_{name.upper()}": value})


def test_an_unknown_setting_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    attempts: list[Callable[[], Settings]] = [
        lambda: load(slotz="1"),
        lambda: load({"slotz": 1}),
        lambda: load(file=toml(tmp_path, "slotz = 1")),
        lambda: Settings().with_changes(slotz=1),
    ]
    for attempt in attempts:
        with pytest.raises(SettingsError, match="Did you mean slots") as refused:
            attempt()
        assert refused.value.field == "slotz"


def test_variables_of_ours_that_are_no_settings_are_left_alone() -> None:
    assert load(server="http://x", key="k", app="a:b", run_id="r", test_anything="1") == Settings()


def test_a_command_that_a_shell_job_runs_may_call_holdbeat() -> None:
    """The run's own variables, which every shell job is handed, are no settings."""
    assert load(run_id="r", job_id="j", fence="7", attempt="1") == Settings()


def test_lists_maps_and_booleans_are_read_from_text_and_from_toml(tmp_path: Path) -> None:
    from_text = load(
        outbound_allow="10.0.0.1, example.org", direct_routes="/a=story,/b=other", allow_shell="yes", legacy_api="0"
    )
    text = (
        'outbound_allow = ["10.0.0.1", "example.org"]\nallow_shell = true\nlegacy_api = false\n'
        '[direct_routes]\n"/a" = "story"\n"/b" = "other"\n'
    )
    assert from_text == load(file=toml(tmp_path, text))
    assert from_text.direct_routes == {"/a": DirectRoute("story"), "/b": DirectRoute("other")}
    assert from_text == load(
        {"outbound_allow": ["10.0.0.1", "example.org"], "direct_routes": '{"/a": "story", "/b": "other"}',
         "allow_shell": True, "legacy_api": False}
    )  # fmt: skip


@pytest.mark.rule("LEASE-01")
@pytest.mark.parametrize(
    ("preset", "heartbeat_s", "lease_s"),
    [("development", 10, 60), ("production", 30, 300), ("high-reliability", 15, 180)],
)
def test_a_preset_stands_for_heartbeat_and_lease_from_any_source(
    preset: str, heartbeat_s: float, lease_s: float
) -> None:
    for settings in (load(preset=preset), load({"preset": preset}), Settings().with_changes(preset=preset)):
        assert (settings.heartbeat_s, settings.lease_s) == (heartbeat_s, lease_s)
    assert load(preset=preset, lease_s="600").lease_s == 600
    with pytest.raises(SettingsError, match="preset 'lazy'"):
        load(preset="lazy")


@pytest.mark.rule("LEASE-01")
def test_a_heartbeat_that_is_not_shorter_than_the_lease_is_refused() -> None:
    attempts: list[Callable[[], Settings]] = [
        lambda: load(heartbeat_s="300"),
        lambda: load(lease_s="20"),
        lambda: Settings().with_changes(heartbeat_s=300),
    ]
    for attempt in attempts:
        with pytest.raises(SettingsError, match="heartbeat"):
            attempt()


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("[::1]", True),
     ("0.0.0.0", False), ("::", False), ("192.168.1.1", False), ("example.org", False)],
)  # fmt: skip
def test_only_loopback_addresses_count_as_this_machine(host: str, is_loopback: bool) -> None:
    assert load(host=host).is_on_loopback is is_loopback


@pytest.mark.rule("OPS-01")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lease_duration", "lease_s"),
        ("heartbeat_interval", "heartbeat_s"),
        ("max_workers", "slots"),
        ("grace_period", "grace_s"),
        ("poll_interval", "recover_s"),
        ("max_retries", "retry_policy.max_attempts"),
        ("maxExecutionTimeMs", "max_execution_s"),
        ("minIntervalMs", "min_interval_s"),
        ("batchSize", "trigger_batch"),
        ("heartbeat_timeout", "lease_s"),
        ("job_timeout", "timeout_s"),
        ("retry_delay", "retry_policy.base_delay_s"),
        ("worker_count", "slots"),
    ],
)
def test_an_old_word_for_a_setting_is_refused_with_the_name_that_replaces_it(old: str, new: str) -> None:
    with pytest.raises(SettingsError, match=f"It is called {new}"):
        Settings().with_changes(**{old: 60})


@pytest.mark.rule("OPS-01", "DIR-05")
def test_a_direct_route_is_a_type_or_a_table_with_its_form(tmp_path: Path) -> None:
    routes = '[direct_routes]\n"/story/generate" = {type = "story", bare = true}\n"/plain" = {type = "story"}\n'
    read = load(file=toml(tmp_path, routes)).direct_routes
    assert read == {"/story/generate": DirectRoute("story", bare=True), "/plain": DirectRoute("story")}
    for wrong in ({"bare": True}, {"type": "story", "bare": "yes"}, {"type": "story", "form": 1}, {"type": ""}):
        with pytest.raises(SettingsError, match="direct_routes"):
            load({"direct_routes": {"/a": wrong}})
