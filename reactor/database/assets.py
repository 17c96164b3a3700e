"""Finds the files that ship with the code: SQL statements and migrations."""

from pathlib import Path

_package = Path(__file__).resolve().parent.parent


def folder(name: str) -> Path:
    """`sql` or `migrations`: inside the package in a wheel, beside it in a checkout."""
    inside = _package / name
    return inside if inside.is_dir() else _package.parent / name
