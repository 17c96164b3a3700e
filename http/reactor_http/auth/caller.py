"""Somebody who asks, and what they may do."""

from dataclasses import dataclass, field
from enum import StrEnum


class Permission(StrEnum):
    VIEW = "view"
    SUBMIT = "submit"
    OPERATE = "operate"


@dataclass(frozen=True)
class Caller:
    name: str
    permissions: frozenset[Permission]
    digest: bytes = field(default=b"", repr=False)
    """Of the token: two may have the same name, and one of them be revoked."""


ANYBODY = Caller("anonymous", frozenset(Permission))
"""Whoever asks a server that has no tokens: it is reached from its own machine only."""
