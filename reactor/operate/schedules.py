"""Operators' actions on schedules: list, enable, disable, run now, remove."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import decoded
from reactor.database.transact import transact
from reactor.errors import ScheduleUnknown
from reactor.operate.audit import Operator, write_audit

Details: TypeAlias = dict[str, Any]


async def list_schedules(connection: Connection) -> list[Details]:
    """All schedules by name, each with the state of its newest job."""
    schedules = [dict(record) for record in await connection.fetch(statements.LIST_SCHEDULES, None)]
    for schedule in schedules:
        schedule["payload"] = decoded(schedule["payload"])
    return schedules


async def enable(connection: Connection, name: str, by: Operator) -> bool:
    """Enables a schedule; runs missed while it was disabled are skipped. Returns whether it was already enabled."""
    return await _set_enabled(connection, name, True, by)


async def disable(connection: Connection, name: str, by: Operator) -> bool:
    """Disables a schedule; its existing jobs are not affected. Returns whether it was enabled."""
    return await _set_enabled(connection, name, False, by)


async def remove(connection: Connection, name: str, by: Operator) -> None:
    """Removes a schedule and keeps its jobs."""

    async def delete() -> Details | None:
        gone = await connection.fetchval(statements.REMOVE_SCHEDULE, name)
        return {"removed": True} if gone else None

    await _audited(connection, name, "schedule remove", by, delete)


async def run(connection: Connection, name: str, by: Operator) -> tuple[int, str]:
    """Submits one extra job of a schedule. Returns its id and `created`, or the id of the blocking job and `busy`."""

    async def insert() -> Details | None:
        made = await connection.fetchrow(statements.RUN_SCHEDULE, name, [None])
        return {"job_id": made["id"], "outcome": made["outcome"]} if made else None

    done = await _audited(connection, name, "schedule run", by, insert)
    return done["job_id"], done["outcome"]


async def _set_enabled(connection: Connection, name: str, on: bool, by: Operator) -> bool:
    async def write() -> Details | None:
        was = await connection.fetchval(statements.ENABLE_SCHEDULE, name, on)
        return None if was is None else {"was_enabled": was}

    done = await _audited(connection, name, "schedule enable" if on else "schedule disable", by, write)
    return bool(done["was_enabled"])


async def _audited(
    connection: Connection, name: str, what: str, by: Operator, action: Callable[[], Awaitable[Details | None]]
) -> Details:
    """Runs `action` and audits its result. None means that the schedule is unknown, which is audited too."""

    async def act_and_audit() -> Details | ScheduleUnknown:
        done = await action()
        result = done or ScheduleUnknown(name, [schedule["name"] for schedule in await list_schedules(connection)])
        await write_audit(connection, by, what, name, done or {"refused": str(result)})
        return result

    result = await transact(connection, act_and_audit)
    if isinstance(result, ScheduleUnknown):
        raise result
    return result
