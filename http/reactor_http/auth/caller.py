"""The caller of a request, and their permissions."""

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
    """Hash of the token. Two tokens may share a name, and one of them be revoked."""


ANONYMOUS = Caller("anonymous", frozenset(Permission))
"""Any caller of a server without tokens, which accepts loopback connections only."""
