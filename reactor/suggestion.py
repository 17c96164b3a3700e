"""Suggests what a misspelt name may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that begins with a space, or nothing."""
    near = get_close_matches(name, list(known))
    return f" Did you mean {' or '.join(near)}?" if near else ""
