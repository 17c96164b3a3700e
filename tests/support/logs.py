"""Reads what a process logs while it is still writing."""

import json
from pathlib import Path
from typing import Any


def whole_lines(file: Path) -> list[str]:
    """Without the one that is still being written."""
    return [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def entries(log_file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in whole_lines(log_file) if line.startswith("{")]
