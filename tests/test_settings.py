"""Settings are read from the environment and refused with a reason."""

import re
from pathlib import Path

import pytest

from reactor.errors import SettingsInvalid
from reactor.settings import read_settings, unknown_settings


def test_the_defaults_are_the_documented_ones() -> None:
    settings = read_settings({})
    assert settings.database_url is None
    assert (settings.poll_seconds, settings.lease_seconds, settings.heartbeat_seconds) == (10, 60, 15)
    assert (settings.shutdown_grace_seconds, settings.on_shutdown) == (20, "release")
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)


def test_a_setting_is_read_from_its_variable() -> None:
    settings = read_settings(
        {"REACTOR_LEASE_SECONDS": "7.5", "REACTOR_HEARTBEAT_SECONDS": "0.5", "REACTOR_QUEUES": "a, b,"}
    )
    assert settings.lease_seconds == 7.5
    assert settings.queues == ("a", "b")


def test_flags_override_variables_only_if_given() -> None:
    assert read_settings({"REACTOR_PORT": "1"}, port=2, host=None).port == 2
    assert read_settings({"REACTOR_PORT": "1"}, port=None).port == 1


def test_an_empty_variable_counts_as_unset() -> None:
    assert read_settings({"REACTOR_DATABASE_URL": ""}).database_url is None


def test_the_pod_id_defaults_to_the_hostname() -> None:
    """P4"""
    assert read_settings({"HOSTNAME": "pod-7"}).pod_id == "pod-7"
    assert read_settings({"HOSTNAME": "pod-7", "REACTOR_POD_ID": "mine"}).pod_id == "mine"
    assert read_settings({}).pod_id


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("REACTOR_LEASE_SECONDS", "soon", "REACTOR_LEASE_SECONDS: .*valid number.*not 'soon'"),
        ("REACTOR_LEASE_SECONDS", "nan", "REACTOR_LEASE_SECONDS: .*finite"),
        ("REACTOR_POLL_SECONDS", "-1", "REACTOR_POLL_SECONDS: .*greater than or equal to 0"),
        ("REACTOR_ON_SHUTDOWN", "explode", "REACTOR_ON_SHUTDOWN: .*'release' or 'fail'"),
        (
            "REACTOR_HEARTBEAT_SECONDS",
            "31",
            r"REACTOR_HEARTBEAT_SECONDS \(31\) must be at most half .* \(60\)",
        ),
        ("REACTOR_PORT", "70000", "REACTOR_PORT: .*65535"),
        ("REACTOR_QUEUES", ",,", "REACTOR_QUEUES: it contains no name"),
        ("REACTOR_DATABASE_URL", "mysql://x/y", "REACTOR_DATABASE_URL: it must be a URL such as postgresql://"),
    ],
)
def test_invalid_settings_are_refused_by_name(variable: str, value: str, problem: str) -> None:
    with pytest.raises(SettingsInvalid, match=problem):
        read_settings({variable: value})


def test_secrets_are_not_shown() -> None:
    settings = read_settings({"REACTOR_DATABASE_URL": "postgresql://u:hush@h/d", "REACTOR_SECRET": "hush" * 8})
    assert "hush" not in repr(settings)


def test_variables_of_a_kubernetes_service_named_reactor_are_ignored() -> None:
    theirs = {
        "REACTOR_PORT": "tcp://10.0.0.1:8080",
        "REACTOR_SERVICE_HOST": "10.0.0.1",
        "REACTOR_PORT_8080_TCP_ADDR": "10.0.0.1",
    }
    assert read_settings(theirs).port == 8080
    assert unknown_settings(theirs) == {}


def test_every_documented_setting_is_known() -> None:
    page = (Path(__file__).parent.parent / "docs" / "settings.md").read_text()
    documented = re.findall(r"^\| `(REACTOR_[A-Z_]+)`", page, re.MULTILINE)
    assert "REACTOR_LOG_LEVEL" in documented
    assert unknown_settings(dict.fromkeys(documented, "1")) == {}


def test_a_misspelt_setting_is_reported_with_the_intended_one() -> None:
    assert unknown_settings({"REACTOR_LEASE_SECOND": "5", "PATH": "/"}) == {
        "REACTOR_LEASE_SECOND": "REACTOR_LEASE_SECONDS"
    }
