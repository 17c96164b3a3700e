"""Documented import paths work after modules are moved."""

import ast
import importlib
from pathlib import Path

import pytest

import reactor

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


def test_examples_import_documented_names_only() -> None:
    """They are what users copy."""
    for path in (Path(__file__).parents[1] / "examples").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("reactor", "reactor_http"):
                names = {(node.module, alias.name) for alias in node.names}
                assert names <= {*DOCUMENTED, *(("reactor", name) for name in reactor.__all__)}, path
            elif isinstance(node, ast.Import):
                assert not [alias for alias in node.names if alias.name.startswith(("reactor.", "reactor_http"))], path
