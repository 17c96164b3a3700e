"""A reader's position in the changes: a database snapshot, as a text from which any process can continue."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Snapshot: TypeAlias = tuple[int, int, tuple[int, ...]]
"""As the driver has it: the first transaction that may be open, the first not started yet, those open in between."""

LONGEST = 4096
"""Of a cursor's text, which must fit into a header."""

_FORM = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16})-([0-9a-f]{1,16})(?:-([0-9a-f.]+))?")
_LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class Cursor:
    epoch: str
    """Identifies the database and its history: transaction numbers mean nothing in another one."""
    snapshot: Snapshot

    def __str__(self) -> str:
        first, next_one, between = self.snapshot
        text = f"{self.epoch}-{first:x}-{next_one:x}"
        return f"{text}-{'.'.join(f'{one - first:x}' for one in between)}" if between else text

    @property
    def text(self) -> str | None:
        """None: too many transactions are open for a text that can be sent; the client keeps its last cursor."""
        text = str(self)
        return text if len(text) <= LONGEST else None


def parse(text: str) -> Cursor | None:
    """None: not a valid cursor."""
    form = _FORM.fullmatch(text) if len(text) <= LONGEST else None
    if form is None:
        return None
    epoch, first, next_one = form[1], int(form[2], 16), int(form[3], 16)
    offsets = [int(one, 16) for one in form[4].split(".")] if form[4] and _is_list(form[4]) else []
    if form[4] and not offsets:
        return None
    between = tuple(first + offset for offset in offsets)
    # As the server writes it: in ascending order, each once, all within the bounds.
    bounds = [first - 1, *between, next_one]
    if not 0 < first <= next_one < _LARGEST or any(a >= b for a, b in pairwise(bounds)):
        return None
    return Cursor(epoch, (first, next_one, between))


def _is_list(text: str) -> bool:
    return all(text.split("."))
