"""Prints tables, fields and JSON. Text from jobs is untrusted: control characters are escaped."""

import json
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

STATE_COLOURS = {
    "waiting": "dim",
    "pending": "cyan",
    "running": "blue",
    "completed": "green",
    "partial": "yellow",
    "failed": "red",
    "cancelled": "magenta",
    "skipped": "dim",
}
# Output that does not go to a terminal is not truncated.
_UNLIMITED_WIDTH = 4000


def printable(text: object, keep_newlines: bool = False) -> str:
    """Escapes control characters and those that change the direction of text."""
    return "".join(_escaped(character, keep_newlines) for character in str(text))


def percent(fraction: float) -> str:
    """Rounded down, so that only finished work is at 100 %."""
    return f"{int(fraction * 100 + 1e-6)}%"


def _escaped(character: str, keep_newlines: bool) -> str:
    if character in "\n\t":
        return character if keep_newlines else {"\n": "\\n", "\t": "\\t"}[character]
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character


def print_json(value: Any) -> None:
    """Prints JSON in ASCII, which is safe on a terminal."""
    try:
        click.echo(json.dumps(value, indent=2, default=_json_value))
    except RecursionError:
        # With indentation, the encoder supports less nesting than the decoder did.
        click.echo(json.dumps(value, default=_json_value))


def encode_json(value: Any) -> str:
    """On one line, in ASCII."""
    return json.dumps(value, default=_json_value)


class ProgressReporter:
    """Prints a line to standard error, at most every `interval_seconds`."""

    interval_seconds = 2.0

    def __init__(self) -> None:
        self._reported_at = time.monotonic()

    def report(self, line: str) -> None:
        if time.monotonic() - self._reported_at >= self.interval_seconds:
            self._reported_at = time.monotonic()
            click.echo(line, err=True)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], shrinkable: Sequence[str] = ()) -> None:
    """One line per row. On a narrow terminal, the shrinkable columns are truncated before the others."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column not in shrinkable, overflow="ellipsis")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    _console().print(table)


def print_fields(fields: dict[str, object]) -> None:
    """One line per field with its name and value; empty fields are omitted."""
    width = max(map(len, fields))
    for name, value in fields.items():
        if value not in (None, "", [], {}):
            text = printable(_format(value), keep_newlines=True).replace("\n", "\n" + " " * (width + 2))
            click.echo(f"{click.style(name.ljust(width), bold=True)}  {text}")


def _console() -> Console:
    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNLIMITED_WIDTH
    return console


def _cell(value: object) -> Text:
    text = printable(_format(value))
    return Text(text, style=STATE_COLOURS.get(text, ""), no_wrap=True, overflow="ellipsis")


_FORMATS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "",
    bool: lambda value: "yes" if value else "no",
    datetime: lambda value: f"{value:%Y-%m-%d %H:%M:%S %Z}",
    list: lambda value: ", ".join(map(str, value)),
    dict: lambda value: json.dumps(value, ensure_ascii=False, indent=2),
}


def _format(value: object) -> str:
    return _FORMATS.get(type(value), str)(value)


def _json_value(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} can't be encoded as JSON")
