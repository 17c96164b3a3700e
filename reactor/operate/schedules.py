"""What operators do with schedules: look, switch on and off, run now, remove."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import decoded
from reactor.database.transact import transact
from reactor.errors import ScheduleUnknown
from reactor.operate.audit import Operator, note

Details: TypeAlias = dict[str, Any]


async def list_schedules(connection: Connection) -> list[Details]:
    """All of them, by name, each with the state of its newest job."""
    schedules = [dict(record) for record in await connection.fetch(statements.LIST_SCHEDULES, None)]
    for schedule in schedules:
        schedule["payload"] = decoded(schedule["payload"])
    return schedules


async def enable(connection: Connection, name: str, by: Operator) -> bool:
    """From now on; what it missed meanwhile is not made up for. Returns whether it was enabled already."""
    return await _switch(connection, name, True, by)


async def disable(connection: Connection, name: str, by: Operator) -> bool:
    """Its jobs that there are go on. Returns whether it was enabled."""
    return await _switch(connection, name, False, by)


async def remove(connection: Connection, name: str, by: Operator) -> None:
    """Its jobs stay."""

    async def delete() -> Details | None:
        gone = await connection.fetchval(statements.REMOVE_SCHEDULE, name)
        return {"removed": True} if gone else None

    await _noted(connection, name, "schedule remove", by, delete)


async def run(connection: Connection, name: str, by: Operator) -> tuple[int, str]:
    """One job of it now, besides its ticks. Returns the job, and `created`; or the job in its way, and `busy`."""

    async def insert() -> Details | None:
        made = await connection.fetchrow(statements.RUN_SCHEDULE, name, [None])
        return {"job_id": made["id"], "outcome": made["outcome"]} if made else None

    done = await _noted(connection, name, "schedule run", by, insert)
    return done["job_id"], done["outcome"]


async def _switch(connection: Connection, name: str, on: bool, by: Operator) -> bool:
    async def write() -> Details | None:
        was = await connection.fetchval(statements.ENABLE_SCHEDULE, name, on)
        return None if was is None else {"was_enabled": was}

    done = await _noted(connection, name, "schedule enable" if on else "schedule disable", by, write)
    return bool(done["was_enabled"])


async def _noted(
    connection: Connection, name: str, what: str, by: Operator, work: Callable[[], Awaitable[Details | None]]
) -> Details:
    """What the work says of itself; None: there is no such schedule, which is noted too."""

    async def work_and_note() -> Details | ScheduleUnknown:
        done = await work()
        answer = done or ScheduleUnknown(name, [schedule["name"] for schedule in await list_schedules(connection)])
        await note(connection, by, what, name, done or {"refused": str(answer)})
        return answer

    answer = await transact(connection, work_and_note)
    if isinstance(answer, ScheduleUnknown):
        raise answer
    return answer
