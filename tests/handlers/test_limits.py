"""Limits that code declares: written when a worker starts, and an operator's change stays."""

from datetime import timedelta
from typing import Any

import pytest

from reactor import Limit, Registry
from reactor.database.connection import Connection
from reactor.errors import LimitInvalid
from reactor.handlers.limits import declare_limits


async def stored(connection: Connection) -> list[tuple[Any, ...]]:
    rows = await connection.fetch(
        "select queue, job_type, lane, max_running, rate, extract(epoch from period)::float8, burst "
        "from reactor.limits order by queue, job_type, lane"
    )
    return [tuple(row) for row in rows]


async def test_limits_of_handlers_are_written(connection: Connection) -> None:
    registry = Registry()
    limits = [Limit(max_running=5), Limit(rate=100, period=timedelta(minutes=1), burst=10, per="lane", queue="q")]

    @registry.register("charge", limit=limits)
    async def charge() -> None: ...

    @registry.register("mail", limit=Limit(rate=3))
    async def mail() -> None: ...

    await declare_limits(connection, registry.limits)
    assert await stored(connection) == [
        ("", "charge", "", 5, None, 1.0, None),
        ("", "mail", "", None, 3, 1.0, None),
        ("q", "charge", "*", None, 100, 60.0, 10),
    ]


async def test_code_changes_its_limit_and_not_an_operators(connection: Connection) -> None:
    async def declare(max_running: int) -> int:
        await declare_limits(connection, {"charge": [Limit(max_running=max_running)]})
        return int(await connection.fetchval("select max_running from reactor.limits"))

    assert await declare(5) == 5
    assert await declare(6) == 6
    await connection.execute("update reactor.limits set max_running = 2")
    assert await declare(6) == 2
    assert await declare(7) == 2
    await connection.execute("update reactor.limits set max_running = 7")
    assert await declare(8) == 8, "the operator has returned to what the code declares"


@pytest.mark.parametrize(
    "values",
    [{}, {"max_running": -1}, {"rate": 0}, {"rate": 1, "period": 0}, {"rate": 1, "burst": 0}, {"rate": 1.5}],
)
def test_an_invalid_limit_is_refused_where_it_is_declared(values: dict[str, Any]) -> None:
    with pytest.raises(LimitInvalid):
        Limit(**values)


def test_a_limit_is_per_type_or_per_lane() -> None:
    with pytest.raises(LimitInvalid):
        Limit(max_running=1, per="customer")  # type: ignore[arg-type]
