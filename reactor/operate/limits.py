"""Operators' actions on limits: list, set, remove."""

from dataclasses import asdict, dataclass
from typing import Any

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import decoded
from reactor.database.transact import transact
from reactor.errors import LimitInvalid, LimitUnknown
from reactor.operate.audit import Operator, write_audit


@dataclass(frozen=True)
class LimitKey:
    """What a limit applies to. Empty: any queue, any type; all jobs together instead of those of each lane (`*`) or of
    one."""

    queue: str = ""
    job_type: str = ""
    lane: str = ""

    def __post_init__(self) -> None:
        if not self.queue and not self.job_type:
            raise LimitInvalid("it names neither a queue nor a job type", "Name at least one of them.")

    def __str__(self) -> str:
        named = {"queue": self.queue, "type": self.job_type, "lane": self.lane}
        return " ".join(f"{name}={value}" for name, value in named.items() if value)


@dataclass(frozen=True)
class LimitValues:
    """None: no limit."""

    max_running: int | None = None
    rate: int | None = None
    period_seconds: float = 1.0
    burst: int | None = None


async def list_limits(connection: Connection) -> list[dict[str, Any]]:
    return [dict(record) for record in await connection.fetch(statements.LIST_LIMITS)]


async def set_limit(connection: Connection, key: LimitKey, values: LimitValues, by: Operator) -> dict[str, Any] | None:
    """Applies to the next claim of any pod. Returns the previous values; None: there was no such limit."""

    async def write() -> dict[str, Any] | None:
        was = await connection.fetchval(
            statements.SET_LIMIT,
            key.queue,
            key.job_type,
            key.lane,
            values.max_running,
            values.rate,
            values.period_seconds,
            values.burst,
        )
        previous: dict[str, Any] | None = None if was is None else decoded(was)
        await write_audit(connection, by, "limit set", str(key), asdict(values) | {"was": previous})
        return previous

    return await transact(connection, write)


async def remove_limit(connection: Connection, key: LimitKey, by: Operator) -> bool:
    """Returns whether code declares the limit: then the next worker that starts writes it again."""

    async def delete() -> bool | None:
        is_declared: bool | None = await connection.fetchval(statements.REMOVE_LIMIT, key.queue, key.job_type, key.lane)
        if is_declared is not None:
            await write_audit(connection, by, "limit remove", str(key), {"is_declared": is_declared})
        return is_declared

    removed = await transact(connection, delete)
    if removed is None:
        raise LimitUnknown(str(key))
    return removed
