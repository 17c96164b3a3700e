"""The workload that autoscalers query, with or without running pods."""

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from reactor.database.connection import Connection
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker


async def workload(connection: Connection, queue: str = "default", job_type: str = "work") -> dict[str, Any]:
    row = await connection.fetchrow(
        "select * from reactor.workload where queue = $1 and job_type = $2", queue, job_type
    )
    return dict(row) if row else {}


async def wanted(connection: Connection) -> int:
    """The query of docs/observability.md."""
    total: int = await connection.fetchval("select coalesce(sum(wanted), 0)::int from reactor.workload")
    return total


async def insert(connection: Connection, n: int = 1, columns: str = "job_type", values: str = "'work'") -> None:
    await connection.execute(f"insert into reactor.jobs ({columns}) select {values} from generate_series(1, {n})")


async def test_due_and_running_jobs_are_the_workload(connection: Connection, worker: Worker) -> None:
    """F3."""
    assert await wanted(connection) == 0
    await insert(connection, 5)
    await insert(connection, 3, "job_type, queue", "'else', 'q'")
    await claim(connection, worker, 2)
    await insert(connection, 4, "job_type, run_after", "'work', now() + interval '1 h'")
    await insert(connection, 1, "job_type", "null::text")
    async with connection.transaction():
        await insert(connection)
        await connection.execute(
            "insert into reactor.dependencies (job_id, depends_on) select max(id), 1 from reactor.jobs"
        )
    found = await workload(connection)
    assert [found[name] for name in ("due", "running", "wanted", "scheduled", "waiting")] == [3, 2, 5, 4, 1]
    assert (await workload(connection, "q", "else"))["due"] == 3
    assert await wanted(connection) == 8


async def test_a_due_scheduled_job_counts_before_a_pod_promotes_it(
    connection: Connection,
) -> None:
    """When scaled to zero, no pod promotes jobs: the autoscaler has to see them."""
    await insert(connection, 2, "job_type, run_after", "'work', now() + interval '1 h'")
    assert await wanted(connection) == 0
    assert (await workload(connection))["next_at"] is not None
    await connection.execute("update reactor.jobs set run_after = now() - interval '60 s' where id = 1")
    found = await workload(connection)
    assert (found["due"], found["scheduled"], found["wanted"]) == (1, 1, 1)
    assert 60 <= found["oldest_due_seconds"] < 80


async def test_parked_jobs_do_not_count_since_no_pod_can_claim_them(connection: Connection, worker: Worker) -> None:
    await insert(connection, 4, "job_type, scope", "'work', 's'")
    await claim(connection, worker, 10)
    found = await workload(connection)
    assert [found[name] for name in ("due", "running", "parked", "wanted")] == [0, 1, 3, 1]


async def test_only_running_jobs_of_a_paused_queue_or_during_a_drain_count(
    connection: Connection, worker: Worker
) -> None:
    await insert(connection, 5)
    await claim(connection, worker, 1)
    await connection.execute("insert into reactor.queues (name, paused) values ('default', true)")
    assert await wanted(connection) == 1
    await connection.execute("update reactor.queues set paused = false")
    assert await wanted(connection) == 5
    await connection.execute("update reactor.settings set draining = true")
    assert await wanted(connection) == 1


async def test_a_queue_counts_at_most_its_limit(connection: Connection, worker: Worker) -> None:
    await insert(connection, 5)
    await insert(connection, 5, "job_type", "'another'")
    await claim(connection, worker, 2)
    await connection.execute("insert into reactor.queues (name, max_running) values ('default', 4)")
    assert await wanted(connection) == 4
    await connection.execute("update reactor.queues set max_running = 9")
    assert await wanted(connection) == 9
    await connection.execute("update reactor.queues set max_running = 100")
    assert await wanted(connection) == 10
    await connection.execute("update reactor.queues set max_running = 1")
    assert await wanted(connection) == 2, "what runs, runs"


async def test_a_due_schedule_is_shown_separately(connection: Connection) -> None:
    """A pod inserts its job, but not one with --once, so it is not part of the workload of such pods."""
    await connection.execute(
        "insert into reactor.schedules (name, job_type, every) values ('s', 'work', interval '1 h')"
    )
    await connection.execute("update reactor.schedules set next_run_at = now() - interval '1 s'")
    found = await workload(connection)
    assert (found["due_schedules"], found["wanted"]) == (1, 0)
    await connection.execute("update reactor.schedules set enabled = false")
    assert await workload(connection) == {}


async def test_counting_stops_at_a_limit(connection: Connection) -> None:
    """The query stays fast when many jobs are waiting."""
    await connection.execute("set session_replication_role = replica")  # without the triggers, which are slow
    await insert(connection, 100_010)
    assert (await workload(connection))["due"] == 100_000


async def test_finished_jobs_are_not_read(connection: Connection, worker: Worker) -> None:
    await insert(connection, 20_000)
    await connection.execute("update reactor.jobs set state = 'completed', finished_at = now()")
    await insert(connection, 10)
    await connection.execute("analyze reactor.jobs")
    async with connection.transaction():
        read = "select seq_scan from pg_stat_xact_user_tables where relid = 'reactor.jobs'::regclass"
        before = await connection.fetchval(read)  # including what this session has not reported to the statistics yet
        assert await wanted(connection) == 10
        assert await connection.fetchval(read) == before


@pytest.mark.parametrize("role", ["reactor_worker", "reactor_viewer"])
async def test_workers_and_viewers_may_query_the_workload(connection: Connection, role: str) -> None:
    await insert(connection, 3)
    async with connection.transaction():
        await connection.execute(f"set local role {role}")
        assert await wanted(connection) == 3


async def test_a_role_for_the_autoscaler_needs_only_the_view(connection: Connection) -> None:
    await insert(connection, 3)
    role = f"reactor_test_{uuid4().hex[:8]}"
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(f"create role {role}")
    await connection.execute(f"grant usage on schema reactor to {role}")
    await connection.execute(f"grant select on reactor.workload to {role}")
    await connection.execute(f"set local role {role}")
    assert await wanted(connection) == 3
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute("select * from reactor.jobs")
    await transaction.rollback()


async def test_jobs_that_limits_hold_back_want_no_pod(connection: Connection, worker: Worker) -> None:
    """Limits on types, on lanes and by rate."""
    for lane in ("a", "b"):
        await insert(connection, 10, "job_type, lane", f"'work', '{lane}'")
    await insert(connection, 10, "job_type, queue", "'another', 'slow'")
    assert await wanted(connection) == 30
    await connection.execute("insert into reactor.limits (job_type, lane, max_running) values ('work', '*', 3)")
    assert await wanted(connection) == 16
    await connection.execute("insert into reactor.limits (job_type, max_running) values ('work', 5)")
    assert await wanted(connection) == 15
    await connection.execute("insert into reactor.limits (queue, rate, period) values ('slow', 1, '1 hour')")
    assert await wanted(connection) == 6
    assert len(await claim(connection, worker, 20)) == 5
    assert await wanted(connection) == 6


async def test_a_type_whose_limit_is_full_leaves_the_places_of_its_queue_to_others(connection: Connection) -> None:
    """Without a pod, they would wait for one forever."""
    await insert(connection, 3, "job_type", "'a'")
    await insert(connection, 3, "job_type", "'b'")
    await connection.execute("insert into reactor.limits (queue, max_running) values ('default', 2)")
    await connection.execute("insert into reactor.limits (job_type, max_running) values ('a', 0)")
    assert [(await workload(connection, job_type=job_type))["wanted"] for job_type in ("a", "b")] == [0, 2]
