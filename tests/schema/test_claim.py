"""The claim: exactly one of any number of pods gets a job, and only when it may run."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from reactor.client.submit import NewJob, submit_many
from reactor.database.connection import Connection, connect
from reactor.job import Job, JobState
from reactor.lifecycle.claim import claim, claim_job, claim_one
from reactor.lifecycle.lease import Worker, heartbeat, register_worker, retire_worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending, Errored
from tests.support.jobs import Row, insert


@pytest.fixture
async def connections(database: str) -> AsyncIterator[list[Connection]]:
    """Eight pods' connections."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connect(database, name=f"pod {n}")) for n in range(8)]


async def finish(connection: Connection, *jobs: Job) -> None:
    written = await settle(connection, [Ending(job.id, job.attempt_id, Completed()) for job in jobs])
    assert len(written) == len(jobs)


async def test_a_claim_locks_the_job_and_counts_the_attempt(connection: Connection, worker: Worker, row: Row) -> None:
    """P1, F4, D3, D7: running, fenced, locked, counted, current, in one statement that returns the row."""
    previous = await insert(connection, scope="module=3/year=2026")
    assert (first := await claim_one(connection, worker, previous))
    await finish(connection, first)
    job_id = await insert(connection, scope="module=3/year=2026", payload='{"file": "a.csv"}', tags=["x"])
    job = await claim_one(connection, worker, job_id)
    assert job
    after = await row(job_id)
    assert after["state"] == "running"
    assert after["attempt_id"] == job.attempt_id
    assert (after["locked_by"], after["worker_id"], after["attempts"]) == ("pod-1", worker.id, 1)
    assert after["is_current"]
    assert after["locked_at"] is not None
    assert after["started_at"] is not None
    assert (job.payload, job.tags, job.attempts, job.quota) == ({"file": "a.csv"}, ["x"], 1, 3)
    assert not (await row(previous))["is_current"]


async def test_a_second_claim_returns_false_and_changes_nothing(
    connection: Connection, worker: Worker, row: Row
) -> None:
    """P1, P3"""
    job_id = await insert(connection)
    assert await claim_job(connection, worker, job_id) is True
    before = await row(job_id)
    assert await claim_job(connection, worker, job_id) is False
    assert await claim(connection, worker, 10) == []
    assert await row(job_id) == before


@pytest.mark.parametrize(
    ("case", "columns", "statement"),
    [
        ("attempts used up", {"max_attempts": 2}, "update reactor.jobs set attempts = 2 where id = $1"),
        ("the default of three used up", {}, "update reactor.jobs set attempts = 3 where id = $1"),
        ("finished", {}, "update reactor.jobs set state = 'completed' where id = $1"),
        ("cancelled", {}, "update reactor.jobs set state = 'cancelled' where id = $1"),
        ("not due", {}, "update reactor.jobs set run_after = now() + interval '1 hour' where id = $1"),
        ("no job_type", {"job_type": None}, None),
        ("waiting", {}, "update reactor.jobs set state = 'waiting' where id = $1"),
        ("queue paused", {"queue": "slow"}, "insert into reactor.queues (name, paused) values ('slow', $1 > 0)"),
        ("queue full", {"queue": "slow"}, "insert into reactor.queues (name, max_running) values ('slow', 0 * $1)"),
        ("draining", {}, "update reactor.settings set draining = $1 > 0"),
    ],
)
async def test_jobs_that_may_not_run_are_not_claimed(
    connection: Connection, worker: Worker, case: str, columns: dict[str, Any], statement: str | None, row: Row
) -> None:
    """P6, D14: each returns False and changes nothing."""
    job_id = await insert(connection, **columns)
    if statement:
        await connection.execute(statement, job_id)
    before = await row(job_id)
    assert await claim_job(connection, worker, job_id) is False, case
    assert await claim(connection, worker, 10) == [], case
    assert await row(job_id) == before


async def test_a_held_scope_is_not_claimed_and_claim_job_changes_nothing(
    connection: Connection, worker: Worker, row: Row
) -> None:
    await insert(connection, scope="s")
    assert len(await claim(connection, worker, 1)) == 1
    second = await insert(connection, scope="s")
    before = await row(second)
    assert await claim_job(connection, worker, second) is False
    assert await row(second) == before


async def test_a_job_that_does_not_exist_can_not_be_claimed(connection: Connection, worker: Worker) -> None:
    assert await claim_job(connection, worker, 12345) is False


async def test_jobs_of_an_unknown_type_are_not_claimed(connection: Connection, worker: Worker, row: Row) -> None:
    job_id = await insert(connection, job_type="unheard_of")
    before = await row(job_id)
    assert await claim(connection, worker, 10) == []
    assert await row(job_id) == before


async def test_only_a_live_worker_can_claim(connection: Connection, worker: Worker) -> None:
    await insert(connection)
    assert await claim(connection, Worker("unregistered", {"work": 3}), 1) == []
    await connection.execute("update reactor.workers set lease_until = clock_timestamp()")
    assert await claim(connection, worker, 1) == []
    assert await heartbeat(connection, worker.id, 60)
    assert len(await claim(connection, worker, 1)) == 1
    await insert(connection)
    late = Worker("pod-1", {"work": 3})
    await register_worker(connection, late, 60)
    await retire_worker(connection, late.id)
    assert await claim(connection, late, 1) == []


async def test_jobs_are_claimed_by_priority_then_id(connection: Connection, worker: Worker) -> None:
    worker = Worker("pod-2", {"a": 3, "b": None})
    await register_worker(connection, worker, 600)
    ids = {}
    named: dict[str, dict[str, Any]] = {
        "late": {"job_type": "a", "priority": 5},
        "first": {"job_type": "b", "priority": -5, "queue": "other"},
        "second": {"job_type": "a"},
        "third": {"job_type": "b"},
        "fourth": {"job_type": "a"},
    }
    for name, columns in named.items():
        ids[name] = await insert(connection, **columns)
    taken: list[int] = []
    for _ in range(5):
        taken += [job.id for job in await claim(connection, worker, 1)]
    assert taken == [ids[name] for name in ("first", "second", "third", "fourth", "late")]


async def test_a_batch_never_exceeds_its_limit(connection: Connection, worker: Worker) -> None:
    worker = Worker("pod-2", {"a": 3, "b": 3, "c": 3})
    await register_worker(connection, worker, 600)
    for kind in "abc":
        for queue in ("default", "other"):
            for _ in range(10):
                await insert(connection, job_type=kind, queue=queue)
    assert len(await claim(connection, worker, 7)) == 7
    assert len(await claim(connection, worker, 100)) == 53


async def test_a_pod_claims_from_its_queues_only(connection: Connection) -> None:
    worker = Worker("pod-2", {"work": 3}, queues=("reports",))
    await register_worker(connection, worker, 600)
    await insert(connection)
    mine = await insert(connection, queue="reports")
    assert [job.id for job in await claim(connection, worker, 10)] == [mine]


async def test_a_queues_limit_holds_over_all_pods(connection: Connection, connections: list[Connection]) -> None:
    await connection.execute("insert into reactor.queues (name, max_running) values ('slow', 5)")
    await submit_many(connection, [NewJob(job_type=("work", "other")[n % 2], queue="slow") for n in range(50)])
    workers = [Worker(f"pod-{n}", {"work": 3, "other": 3}) for n in range(8)]
    for worker in workers:
        await register_worker(connection, worker, 600)
    claimed = await asyncio.gather(*(claim(c, w, 10) for c, w in zip(connections, workers, strict=True)))
    jobs = [job for batch in claimed for job in batch]
    assert len(jobs) == 5
    await finish(connection, *jobs[:2])
    assert len(await claim(connection, workers[0], 10)) == 2


async def test_eight_claimers_get_each_of_a_thousand_jobs_once(
    connection: Connection, connections: list[Connection]
) -> None:
    """P9, F4: over separate connections, without an error or a deadlock."""
    await submit_many(connection, [NewJob(job_type="work") for _ in range(1000)])

    async def pod(number: int, own: Connection) -> list[int]:
        worker = Worker(f"pod-{number}", {"work": 3})
        await register_worker(own, worker, 600)
        taken: list[int] = []
        while batch := await claim(own, worker, 7):
            taken += [job.id for job in batch]
        return taken

    taken = [job_id for ids in await asyncio.gather(*map(pod, range(8), connections)) for job_id in ids]
    assert len(taken) == 1000
    assert len(set(taken)) == 1000


async def test_eight_claimers_and_fifty_scopes_never_run_two_of_one(
    connection: Connection, connections: list[Connection]
) -> None:
    """P2: an index checks it too. A collision does not fail a batch, and no job is left over."""
    jobs = [NewJob(job_type="work", scope=f"scope {n % 50}" if n % 4 else None) for n in range(1000)]
    await submit_many(connection, jobs)
    running: Counter[str] = Counter()
    done: Counter[int] = Counter()

    async def pod(number: int, own: Connection) -> None:
        worker = Worker(f"pod-{number}", {"work": 5})
        await register_worker(own, worker, 600)
        async with asyncio.timeout(60):
            while sum(done.values()) < 1000:
                batch = await claim(own, worker, 10)
                for job in batch:
                    if job.scope:
                        running[job.scope] += 1
                        assert running[job.scope] == 1, f"two of {job.scope}"
                await asyncio.sleep(0)
                for job in batch:
                    if job.scope:
                        running[job.scope] -= 1
                again = {job.id for job in batch if job.attempts == 1 and job.id % 10 == 0}
                endings = [
                    Ending(job.id, job.attempt_id, Errored("once more") if job.id in again else Completed())
                    for job in batch
                ]
                assert len(await settle(own, endings)) == len(batch)
                done.update(job.id for job in batch if job.id not in again)

    await asyncio.gather(*map(pod, range(8), connections))
    assert set(done.values()) == {1}
    assert await connection.fetchval("select count(*) from reactor.jobs where state = 'completed'") == 1000


async def test_of_two_jobs_of_a_scope_one_wins_and_the_other_runs_after_it(
    connection: Connection, worker: Worker, connections: list[Connection], row: Row
) -> None:
    first, second = [await insert(connection, scope="s") for _ in range(2)]
    won = await asyncio.gather(claim_one(connections[0], worker, first), claim_one(connections[1], worker, second))
    [winner] = [job for job in won if job]
    [loser] = {first, second} - {winner.id}
    assert (await row(loser))["state"] == "pending"
    assert await claim_one(connection, worker, loser) is None
    await finish(connection, winner)
    assert await claim_one(connection, worker, loser)
    assert not (await row(winner.id))["is_current"]


async def test_the_index_refuses_a_second_running_job_of_a_scope(connection: Connection, worker: Worker) -> None:
    """P2: even if a statement is wrong."""
    first, second = [await insert(connection, scope="s") for _ in range(2)]
    assert await claim_job(connection, worker, first)
    with pytest.raises(asyncpg.UniqueViolationError, match="jobs_scope_held"):
        await connection.execute(
            "update reactor.jobs set state = 'running', attempt_id = gen_random_uuid(), worker_id = gen_random_uuid() "
            "where id = $1",
            second,
        )


async def test_jobs_behind_a_busy_scope_are_parked_and_released_one_by_one(
    connection: Connection, worker: Worker
) -> None:
    ids = [await insert(connection, scope="s") for _ in range(5)]
    other = await insert(connection)
    [first, beside] = await claim(connection, worker, 3)
    assert (first.id, beside.id) == (ids[0], other)
    assert await connection.fetchval("select count(*) from reactor.jobs where parked") == 4
    await finish(connection, first)
    assert await connection.fetchval("select count(*) from reactor.jobs where parked") == 3
    order = [first.id]
    while batch := await claim(connection, worker, 3):
        await finish(connection, *batch)
        order += [job.id for job in batch]
    assert order == ids


async def test_dead_pods_do_not_block_a_scope(connection: Connection, worker: Worker) -> None:
    """Neither the only pods of a queue nor those with the only handler of a type."""
    [holder] = [await insert(connection, scope="s")]
    assert (job := await claim_one(connection, worker, holder))
    everything = Worker("pod-2", {"work": 3, "dead": 3})
    await register_worker(connection, everything, 600)
    await insert(connection, scope="s", queue="abandoned", priority=-10)
    await insert(connection, scope="s", job_type="dead", priority=-10)
    mine = await insert(connection, scope="s")
    assert await claim(connection, everything, 10) == []
    await finish(connection, job)
    here = Worker("pod-3", {"work": 3}, queues=("default",))
    await register_worker(connection, here, 600)
    assert [job.id for job in await claim(connection, here, 10)] == [mine]


async def test_cancelling_the_first_job_of_a_scope_releases_the_next(connection: Connection, worker: Worker) -> None:
    first, second, third = [await insert(connection, scope="s") for _ in range(3)]
    [job] = await claim(connection, worker, 3)
    await finish(connection, job)
    await connection.execute("update reactor.jobs set state = 'cancelled' where id = $1", second)
    assert [job.id for job in await claim(connection, worker, 3)] == [third]
    assert first == job.id


async def test_a_claim_that_is_rolled_back_has_no_effect(
    connection: Connection, worker: Worker, database: str, row: Row
) -> None:
    job_id = await insert(connection, scope="s")
    before = await row(job_id)
    transaction = connection.transaction()
    await transaction.start()
    assert await claim_job(connection, worker, job_id)
    async with connect(database, name="other") as other:
        assert await claim_job(other, worker, job_id) is False
    await transaction.rollback()
    assert await row(job_id) == before
    assert await claim_job(connection, worker, job_id)


async def test_started_at_stays_and_locked_at_is_renewed_over_retries(
    connection: Connection, worker: Worker, row: Row
) -> None:
    """D7"""
    job_id = await insert(connection)
    assert (first := await claim_one(connection, worker, job_id))
    assert await settle(connection, [Ending(job_id, first.attempt_id, Errored("no"))]) == {job_id: JobState.PENDING}
    assert (second := await claim_one(connection, worker, job_id))
    assert second.started_at == first.started_at
    assert second.locked_at > first.locked_at
    assert second.attempt_id != first.attempt_id
    await finish(connection, second)
    assert (await row(job_id))["finished_at"] is not None


async def test_an_unreadable_payload_fails_its_own_job_and_not_the_batch(
    connection: Connection, worker: Worker, row: Row
) -> None:
    bad = [
        await insert(connection, payload='{"n": 1e5000}'),
        await insert(connection, payload='{"n": ' + "[" * 12_000 + "]" * 12_000 + "}"),
    ]
    good = await insert(connection)
    assert [job.id for job in await claim(connection, worker, 10)] == [good]
    for job_id in bad:
        after = await row(job_id)
        assert after["state"] == "failed"
        assert after["error"].startswith("The payload can't be read: ")
    assert await claim_one(connection, worker, await insert(connection, payload='{"n": 1e5000}')) is None


async def test_a_quota_is_not_reduced_by_a_new_deployment(connection: Connection, row: Row) -> None:
    """A handler is deployed with fewer attempts: jobs that have started keep theirs, and block no other job."""
    generous, strict = Worker("old", {"work": 5}), Worker("new", {"work": 1, "other": 1})
    for worker in (generous, strict):
        await register_worker(connection, worker, 600)
    job_id = await insert(connection)
    assert (job := await claim_one(connection, generous, job_id, 5))
    await settle(connection, [Ending(job_id, job.attempt_id, Errored("x"))])
    other = await insert(connection, job_type="other")
    assert [job.id for job in await claim(connection, strict, 1)] == [job_id]
    assert [job.id for job in await claim(connection, strict, 1)] == [other]
    assert (await row(job_id))["quota"] == 5


async def test_locked_rows_do_not_hide_other_jobs(connection: Connection, database: str) -> None:
    worker = Worker("pod", {"a": 3, "b": 3})
    await register_worker(connection, worker, 600)
    locked = [await insert(connection, job_type="a") for _ in range(10)]
    behind = await insert(connection, job_type="b")
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("select from reactor.jobs where id = any($1) for update", locked)
        assert [job.id for job in await claim(connection, worker, 5)] == [behind]


async def test_many_jobs_of_a_busy_scope_do_not_hide_other_jobs(connection: Connection, worker: Worker) -> None:
    await submit_many(connection, [NewJob(job_type="work", scope="s") for _ in range(500)])
    free = await insert(connection)
    assert len(await claim(connection, worker, 1)) == 1
    assert [job.id for job in await claim(connection, worker, 1)] == [free]


async def test_a_scope_whose_last_run_is_locked_does_not_stop_the_queue(
    connection: Connection, worker: Worker, database: str
) -> None:
    last = await insert(connection, scope="s")
    assert (job := await claim_one(connection, worker, last))
    await finish(connection, job)
    await insert(connection, scope="s")
    free = await insert(connection)
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("select from reactor.jobs where id = $1 for share", last)
        assert [job.id for job in await claim(connection, worker, 1)] == [free]


async def test_no_job_is_parked_behind_a_job_that_was_not_claimed(connection: Connection, row: Row) -> None:
    """A claim of one job skips a busy scope and reads two jobs of another scope, which it does not claim."""
    worker, other = Worker("pod", {"work": 3}), Worker("other", {"work": 3, "rare": 3})
    for each in (worker, other):
        await register_worker(connection, each, 600)
    await insert(connection, scope="busy", priority=-9)
    assert len(await claim(connection, other, 1)) == 1
    for _ in range(3):
        await insert(connection, scope="busy", priority=-9)
    free = await insert(connection, priority=-8)
    leader = await insert(connection, job_type="rare", scope="s")
    follower = await insert(connection, scope="s")
    assert [job.id for job in await claim(connection, other, 1)] == [free]
    assert not (await row(leader))["parked"]
    assert [job.id for job in await claim(connection, worker, 5)] == [follower]


async def test_limited_queues_claimed_from_all_sides_never_deadlock(
    connection: Connection, connections: list[Connection]
) -> None:
    await connection.execute("insert into reactor.queues (name, max_running) values ('a', 3), ('b', 2)")
    jobs = [NewJob(job_type="work", queue="ab"[n % 2], scope=f"s{n % 5}" if n % 3 else None) for n in range(300)]
    await submit_many(connection, jobs)
    done = 0

    async def pod(number: int, own: Connection) -> None:
        nonlocal done
        worker = Worker(f"pod-{number}", {"work": 3})
        await register_worker(own, worker, 600)
        async with asyncio.timeout(60):
            while done < 300:
                batch = await claim(own, worker, 4)
                await finish(own, *batch)
                done += len(batch)

    await asyncio.gather(*map(pod, range(4), connections))
    assert done == 300


async def test_the_claim_reads_its_index_and_not_the_table(connection: Connection, worker: Worker) -> None:
    """It reads no finished, scheduled or parked jobs, and none of other types."""
    await connection.execute("set session_replication_role = replica")
    await connection.execute(
        "insert into reactor.jobs (job_type, state, run_after, parked, scope) "
        "select 'work', 'completed', null::timestamptz, false, null from generate_series(1, 5000) union all "
        "select 'other', 'pending', null, false, null from generate_series(1, 5000) union all "
        "select 'work', 'pending', now() + interval '1 day', false, null from generate_series(1, 5000) union all "
        "select 'work', 'pending', null, true, 's' from generate_series(1, 5000) union all "
        "select 'work', 'pending', null, false, null from generate_series(1, 200)"
    )
    await connection.execute("set session_replication_role = origin; analyze reactor.jobs")
    # What this transaction reads: autovacuum scans the table to summarize its BRIN index.
    read = (
        "select pg_stat_get_xact_numscans('reactor.jobs'::regclass) as scans, "
        "pg_stat_get_xact_tuples_returned('reactor.jobs_ready'::regclass) as entries"
    )
    async with connection.transaction():
        before = await connection.fetchrow(read)
        assert len(await claim(connection, worker, 100)) == 100
        after = await connection.fetchrow(read)
    assert before
    assert after
    assert after["scans"] == before["scans"], "the table was scanned"
    assert after["entries"] - before["entries"] <= 500


async def test_a_claim_over_many_kinds_reads_little_more_than_it_takes(connection: Connection) -> None:
    """One entry per queue and type, and not a whole batch of each."""
    types = [f"type {n}" for n in range(100)]
    worker = Worker("pod-1", dict.fromkeys(types, 3))
    await register_worker(connection, worker, 600)
    await connection.execute(
        "insert into reactor.jobs (job_type, queue) select 'type ' || t, 'queue ' || q "
        "from generate_series(1, 50) n, generate_series(0, 99) t, generate_series(0, 4) q order by n, t, q"
    )
    read = "select pg_stat_get_xact_tuples_returned('reactor.jobs_ready'::regclass)"
    async with connection.transaction():
        before = await connection.fetchval(read)
        jobs = await claim(connection, worker, 100)
        entries = await connection.fetchval(read) - before
    first = await connection.fetchval("select min(id) from reactor.jobs")
    assert sorted(job.id for job in jobs) == list(range(first, first + 100))
    assert entries < 500 + 10 * 100


async def test_priority_comes_first_over_all_kinds(connection: Connection) -> None:
    """Also where one kind has most of the urgent jobs."""
    worker = Worker("pod-1", {"a": 3, "b": 3, "c": 3})
    await register_worker(connection, worker, 600)
    for job_type in ("a", "b", "c"):
        await submit_many(connection, [NewJob(job_type=job_type)] * 30)
    urgent = [await insert(connection, job_type="c", priority=-1) for _ in range(20)]
    assert sorted(job.id for job in await claim(connection, worker, 20)) == urgent


async def test_full_queues_do_not_hide_other_queues(connection: Connection, worker: Worker) -> None:
    """However many there are, and however old their jobs."""
    await connection.execute(
        "insert into reactor.queues (name, max_running) select 'full ' || n, 0 from generate_series(1, 150) n; "
        "insert into reactor.jobs (job_type, queue) select 'work', 'full ' || n from generate_series(1, 150) n"
    )
    free = await insert(connection)
    assert [job.id for job in await claim(connection, worker, 10)] == [free]
