"""Documented import paths work after modules are moved."""

import importlib

import pytest

DOCUMENTED = [
    ("reactor.embedded", "start_embedded"),
    ("reactor.look", "find_pipeline"),
    ("reactor.operate", "Operator"),
    ("reactor.operate", "cancel"),
    ("reactor.operate", "limit"),
    ("reactor.settings", "read_settings"),
    ("reactor.testing", "run_until_idle"),
    ("reactor.pytest_plugin", "reactor_database"),
    ("reactor_http.app", "authorize"),
    ("reactor_http.app", "create_app"),
    ("reactor_http.measure", "Measure"),
]


@pytest.mark.parametrize(("module", "name"), DOCUMENTED)
def test_documented_paths_lead_to_their_names(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)
