"""Every statement fits the schema, and none that writes to a running job can do so with a stale attempt."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.lifecycle.claim import claim_one
from reactor.lifecycle.lease import Worker, register_worker
from tests.support.jobs import Row

ALL = {name: sql for name, sql in vars(statements).items() if name.isupper()}

# Statements that may change a running job without its attempt_id, with the reason.
NOT_AN_ATTEMPTS = {
    "CANCEL": "an operator's: takes the job from whichever attempt has it",
}

# Arguments by type: the running job's id, and an attempt and a worker that are not its own.
STRANGER = UUID("99999999-9999-9999-9999-999999999999")


def stale_argument(parameter: asyncpg.Type, job_id: int) -> Any:
    return {
        "int8": job_id,
        "int8[]": [job_id],
        "uuid": STRANGER,
        "uuid[]": [STRANGER],
        "text": "released",
        "text[]": ["completed"],
        "jsonb": "[]",
        "jsonb[]": [None],
        "int4": 10,
        "int4[]": [1],
        "float4": 0.5,
        "float4[]": [0.5],
        "float8": 1.0,
        "float8[]": [0.0],
        "bool": True,
        "bool[]": [True],
        "txid_snapshot": (1, 1, ()),
        "txid_snapshot[]": [None],
        "timestamptz": datetime(2026, 1, 1, tzinfo=UTC),
    }[parameter.name]


@pytest.mark.parametrize("name", ALL)
async def test_every_statement_can_be_prepared(connection: Connection, name: str) -> None:
    await connection.prepare(ALL[name])


@pytest.fixture
async def running(connection: Connection, row: Row) -> dict[str, Any]:
    """The row of a running job of a live worker, with a scope."""
    worker = Worker("pod", {"work": 3})
    await register_worker(connection, worker, 60)
    job_id = await connection.fetchval("insert into reactor.jobs (job_type, scope) values ('work', 's') returning id")
    assert await claim_one(connection, worker, job_id)
    # With the names that statements get as texts below.
    await connection.execute(
        "insert into reactor.steps (job_id, name, position) values ($1, 'completed', 0), ($1, 'released', 1)", job_id
    )
    return await row(job_id)


async def steps(connection: Connection) -> list[asyncpg.Record]:
    """And the lines of its log."""
    return [
        *await connection.fetch("select * from reactor.steps order by position"),
        *await connection.fetch("select * from reactor.logs order by id"),
    ]


@pytest.mark.parametrize("name", sorted(set(ALL) - set(NOT_AN_ATTEMPTS)))
async def test_a_stale_attempt_changes_nothing(
    connection: Connection, running: dict[str, Any], name: str, row: Row
) -> None:
    """F5, F7, D5: called with the right job and a wrong attempt or worker, no statement changes a running job or its
    steps."""
    before = await steps(connection)
    prepared = await connection.prepare(ALL[name])
    await prepared.fetch(*(stale_argument(p, running["id"]) for p in prepared.get_parameters()))
    assert await row(running["id"]) == running
    assert await steps(connection) == before


async def test_the_exempt_statements_change_the_job(connection: Connection, running: dict[str, Any], row: Row) -> None:
    for name in NOT_AN_ATTEMPTS:
        prepared = await connection.prepare(ALL[name])
        await prepared.fetch(*(stale_argument(p, running["id"]) for p in prepared.get_parameters()))
    after = await row(running["id"])
    assert (after["state"], after["attempt_id"]) == ("cancelled", None)


async def test_the_current_attempt_changes_the_job(connection: Connection, running: dict[str, Any], row: Row) -> None:
    """Otherwise the test above would prove nothing."""
    for name in ("PLAN_STEPS", "RECORD_STEPS", "REPORT_PROGRESS", "REPORT_FACTS", "WRITE_LOGS", "SETTLE"):
        before = await row(running["id"]), await steps(connection)
        prepared = await connection.prepare(ALL[name])
        arguments = [stale_argument(p, running["id"]) for p in prepared.get_parameters()]
        own = [
            running["attempt_id"] if a == STRANGER else [running["attempt_id"]] if a == [STRANGER] else a
            for a in arguments
        ]
        await prepared.fetch(*own)
        assert (await row(running["id"]), await steps(connection)) != before, name
