"""Queues, and the restrictions that keep due jobs from being claimed."""

from dataclasses import dataclass
from typing import Any

from reactor.database import statements
from reactor.database.connection import Connection


@dataclass(frozen=True)
class Queues:
    """All queues with their numbers of jobs, and whether draining is on."""

    draining: bool
    queues: list[dict[str, Any]]


@dataclass(frozen=True)
class Restrictions:
    """Settings that keep due jobs from being claimed."""

    draining: bool
    queues: list[dict[str, Any]]
    """Queues that are paused or have a limit."""


async def list_queues(connection: Connection) -> Queues:
    records = await connection.fetch(statements.LIST_QUEUES)
    queues = [dict(record) for record in records if record["queue"] is not None]
    for queue in queues:
        del queue["draining"]
    return Queues(records[0]["draining"], queues)


async def find_restrictions(connection: Connection) -> Restrictions:
    records = await connection.fetch(statements.CLAIM_LIMITS)
    queues = [
        {name: record[name] for name in ("queue", "paused", "max_running", "running")}
        for record in records
        if record["queue"] is not None
    ]
    return Restrictions(records[0]["draining"], queues)
