"""Somebody who asks, and what they may do."""

from dataclasses import dataclass
from enum import StrEnum


class Permission(StrEnum):
    VIEW = "view"
    SUBMIT = "submit"
    OPERATE = "operate"


@dataclass(frozen=True)
class Caller:
    name: str
    permissions: frozenset[Permission]


ANYBODY = Caller("anonymous", frozenset(Permission))
"""Whoever asks a server that has no tokens: it is reached from its own machine only."""
