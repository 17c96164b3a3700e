"""What indexes know of a job (`phase`, `holds_scope`) and who holds what (`reactor.claims`), whoever writes the row."""

from typing import Any
from uuid import UUID

import pytest

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.lifecycle.claim import claim, claim_one
from reactor.lifecycle.lease import Worker, retire_worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending
from tests.support.jobs import Row, insert

CHANGES = {
    "state = 'running', worker_id = gen_random_uuid()": ("taken", True),
    "state = 'completed', finished_at = now()": ("taken", False),
    "state = 'failed'": ("failed", False),
    "state = 'partial'": ("failed", False),
    "state = 'cancelled'": ("cancelled", False),
    "state = 'waiting'": ("waiting", False),
    "run_after = now() + interval '1 h'": ("scheduled", False),
    "parked = true": ("parked", False),
    "job_type = null": ("adopted", False),
    "exclusive = true, state = 'completed'": ("completed", False),
    "worker_id = gen_random_uuid()": ("ready", True),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.items())
async def test_changes_by_hand_get_their_phase(
    connection: Connection, row: Row, change: str, expected: tuple[str, bool]
) -> None:
    job_id = await insert(connection, scope="s")
    async with connection.transaction():
        # Twice in one transaction: the second change finds the row as the first one left it.
        await connection.execute("update reactor.jobs set tags = '{x}' where id = $1", job_id)
        await connection.execute(f"update reactor.jobs set {change} where id = $1", job_id)
    after = await row(job_id)
    assert (after["phase"], after["holds_scope"]) == expected
    assert after["changed_xid"] > after["inserted_xid"]


@pytest.mark.parametrize(
    ("columns", "phase"),
    [
        ({}, "ready"),
        ({"phase": "taken", "holds_scope": True}, "ready"),
        ({"state": "completed"}, "taken"),
        ({"state": "failed"}, "failed"),
        ({"job_type": None}, "adopted"),
        ({"parked": True, "scope": "s"}, "parked"),
    ],
)
async def test_inserted_rows_get_their_phase(
    connection: Connection, row: Row, columns: dict[str, Any], phase: str
) -> None:
    job_id = await insert(connection, **columns)
    after = await row(job_id)
    assert (after["phase"], after["holds_scope"]) == (phase, False)


async def test_plain_completions_change_no_index(connection: Connection, worker: Worker, server_version: int) -> None:
    """A HOT update, where the page has space for it."""
    if server_version < 160000:
        pytest.skip("before PostgreSQL 16, BRIN indexes prevent HOT updates")
    await insert(connection)
    jobs = await claim(connection, worker, 10)
    hot = "select n_tup_hot_upd from pg_stat_xact_user_tables where relid = 'reactor.jobs'::regclass"
    async with connection.transaction():
        before = await connection.fetchval(hot)
        await settle(connection, [Ending(job.id, job.attempt_id, Completed({"n": 1})) for job in jobs])
        assert await connection.fetchval(hot) == before + 1


@pytest.fixture
async def server_version(connection: Connection) -> int:
    return int(await connection.fetchval("show server_version_num"))


async def test_claims_name_every_job_that_is_held(connection: Connection, worker: Worker) -> None:
    """Also those that were set by hand, or inserted: the sweeper finds jobs of dead workers by them."""
    jobs = [await insert(connection) for _ in range(3)]
    await claim(connection, worker, 1)
    assert await claim_one(connection, worker, jobs[1])
    by_hand = "update reactor.jobs set state = 'running', attempt_id = gen_random_uuid(), worker_id = $2 where id = $1"
    await connection.execute(by_hand, jobs[2], worker.id)
    inserted = await insert(connection, state="running", attempt_id=UUID(int=1), worker_id=worker.id)
    held = "select array_agg(id order by id) from reactor.held_jobs"
    assert await connection.fetchval(held) == [*jobs, inserted]
    await retire_worker(connection, worker.id)
    assert {record["id"] for record in await connection.fetch(statements.SWEEP, 100)} == {*jobs, inserted}
    assert await connection.fetchval(held) is None


async def test_claims_are_forgotten_when_nothing_of_them_is_held(connection: Connection, worker: Worker) -> None:
    for _ in range(40):
        await insert(connection)
    kept, *others = [job for _ in range(40) for job in await claim(connection, worker, 1)]
    await settle(connection, [Ending(job.id, job.attempt_id, Completed()) for job in others])
    await connection.execute(statements.FORGET_CLAIMS, 1000)
    assert await connection.fetchval("select array_agg(job_ids) from reactor.claims") == [[kept.id]]


async def test_a_worker_forgets_its_claims_while_it_claims(connection: Connection, worker: Worker) -> None:
    for _ in range(200):
        await insert(connection)
        [job] = await claim(connection, worker, 1)
        await settle(connection, [Ending(job.id, job.attempt_id, Completed())])
    assert await connection.fetchval("select count(*) from reactor.claims") < 150
