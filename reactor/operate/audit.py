"""An operator's work: one transaction, with its note in the audit."""

from dataclasses import dataclass
from typing import Any

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import encode, storable


@dataclass(frozen=True)
class Operator:
    who: str
    came_from: str
    """`cli`, or the address of an HTTP client."""


async def note(connection: Connection, by: Operator, what: str, target: str | None, details: dict[str, Any]) -> None:
    await connection.execute(statements.AUDIT, storable(by.who), what, target, storable(by.came_from), encode(details))
