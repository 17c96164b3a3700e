"""Reads what a process logs while it is still writing."""

import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

Events = list[MutableMapping[str, Any]]
"""Log entries of this process, as structlog captures them."""


def whole_lines(file: Path) -> list[str]:
    """Without a line that is still being written."""
    return [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def entries(log_file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in whole_lines(log_file) if line.startswith("{")]
