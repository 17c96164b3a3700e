"""Prints data for people and for programs. Texts of jobs come from anywhere, and are shown as texts only."""

import json
import os
import sys
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
# As wide as it gets: where nobody looks at a screen, nothing is cut off.
_WIDEST = 4000


def harmless(text: object, lines: bool = False) -> str:
    """Control characters, and those that turn the direction of text, as escapes. With `lines` line ends stay."""
    return "".join(_visible(character, lines) for character in str(text))


def percent(fraction: float) -> str:
    """Rounded down: only what is done is 100 %."""
    return f"{int(fraction * 100 + 1e-6)}%"


def _visible(character: str, lines: bool) -> str:
    if character in "\n\t":
        return character if lines else {"\n": "\\n", "\t": "\\t"}[character]
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character


def print_json(value: Any) -> None:
    """ASCII only, so that it is as harmless on a terminal as in a file."""
    try:
        click.echo(json.dumps(value, indent=2, default=_plain))
    except RecursionError:
        # Indenting goes less deep than reading did.
        click.echo(json.dumps(value, default=_plain))


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], stretchy: Sequence[str] = ()) -> None:
    """One line a row. Where the screen is too narrow, the stretchy columns are cut short, the others last."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column not in stretchy, overflow="ellipsis")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    _console().print(table)


def print_fields(fields: dict[str, object]) -> None:
    """Name and value, a line each; NULLs are left out."""
    width = max(map(len, fields))
    for name, value in fields.items():
        if value not in (None, "", [], {}):
            text = harmless(_word(value), lines=True).replace("\n", "\n" + " " * (width + 2))
            click.echo(f"{click.style(name.ljust(width), bold=True)}  {text}")


def _console() -> Console:
    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDEST
    return console


def _cell(value: object) -> Text:
    text = harmless(_word(value))
    return Text(text, style=STATE_COLOURS.get(text, ""), no_wrap=True, overflow="ellipsis")


_WORDS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "",
    bool: lambda value: "yes" if value else "no",
    datetime: lambda value: f"{value:%Y-%m-%d %H:%M:%S %Z}",
    list: lambda value: ", ".join(map(str, value)),
    dict: lambda value: json.dumps(value, ensure_ascii=False, indent=2),
}


def _word(value: object) -> str:
    return _WORDS.get(type(value), str)(value)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"no JSON for a {type(value).__name__}")
