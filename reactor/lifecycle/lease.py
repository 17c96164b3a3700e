"""A worker process's lease: taken when it starts, renewed by heartbeats, given back when it ends."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from reactor.database import statements
from reactor.database.connection import Connection


@dataclass(frozen=True)
class Worker:
    """One incarnation of a worker process. A pod that restarts under its old name has another one."""

    pod: str
    job_types: Mapping[str, int | None]
    """The types it has handlers for, with the attempts that those registered (None: 3)."""
    queues: tuple[str, ...] = ()
    """Empty: all."""
    capacity: int = 1
    id: UUID = field(default_factory=uuid4)
    slots: Mapping[str, int] = field(default_factory=dict)
    """The number of its slots that jobs of a queue may take; queues without an entry may take all of them."""


def split_slots(queues: Iterable[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    """The names of queues that may be followed by a colon and a number of slots, and these numbers."""
    names, slots = [], {}
    for queue in queues:
        found = re.fullmatch(r"(?P<name>.+):(?P<slots>[1-9][0-9]{0,4})", queue)
        names.append(found["name"] if found else queue)
        if found:
            slots[found["name"]] = int(found["slots"])
    return tuple(names), slots


async def register_worker(connection: Connection, worker: Worker, lease_seconds: float) -> None:
    await connection.execute(
        statements.REGISTER_WORKER,
        worker.id,
        worker.pod,
        list(worker.job_types),
        list(worker.queues) or None,
        worker.capacity,
        lease_seconds,
    )


async def heartbeat(connection: Connection, worker_id: UUID, lease_seconds: float, counts: str | None = None) -> bool:
    """Renews the lease. False: the worker was considered dead, its jobs belong to others, and it must stop.

    `counts`: its totals so far, as JSON; None: unchanged since the last time.
    """
    return await connection.fetchval(statements.HEARTBEAT, worker_id, lease_seconds, counts) is not None


async def retire_worker(connection: Connection, worker_id: UUID, counts: str | None = None) -> None:
    await connection.execute(statements.RETIRE_WORKER, worker_id, counts)
