"""The audit: records each action with its operator."""

from dataclasses import dataclass
from typing import Any

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import encode, storable


@dataclass(frozen=True)
class Operator:
    """The person or client that an action is attributed to."""

    who: str
    came_from: str
    """`cli`, or the address of an HTTP client."""


async def write_audit(
    connection: Connection, by: Operator, what: str, target: str | None, details: dict[str, Any]
) -> None:
    await connection.execute(
        statements.RECORD_ACTION, storable(by.who), what, target, storable(by.came_from), encode(details)
    )
