"""Scopes under locks of other transactions: nothing waits, nothing is forgotten, and the oldest job leads."""

import json

import pytest

from reactor.children import Children
from reactor.client.submit import NewJob, submit_many
from reactor.database import statements
from reactor.database.connection import Connection, connect
from reactor.handlers.registry import Registry
from reactor.job import Job
from reactor.lifecycle.claim import Again, claim, claim_once, claim_one
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import abandon, settle
from reactor.outcome import Completed, Ending, Errored
from tests.support.claim_loops import Running
from tests.support.jobs import Row, insert
from tests.support.until import until


async def finish(connection: Connection, job: Job) -> None:
    assert await settle(connection, [Ending(job.id, job.attempt_id, Completed())])


async def parked(connection: Connection) -> int:
    count: int = await connection.fetchval("select count(*) from reactor.jobs where phase = 'parked'")
    return count


async def park(connection: Connection, job_id: int | None = None) -> None:
    """Without the triggers, which would unpark the first job of a free scope."""
    await connection.execute("alter table reactor.jobs disable trigger user")
    await connection.execute(
        "update reactor.jobs set parked = true, phase = 'parked' where id = coalesce($1, id)", job_id
    )
    await connection.execute("alter table reactor.jobs enable trigger user")


async def test_a_lock_on_the_running_job_does_not_hide_free_jobs_behind_its_scope(
    connection: Connection, worker: Worker, database: str
) -> None:
    """A handler that updates its own row is enough to hold that lock."""
    await submit_many(connection, [NewJob(job_type="work", scope="s")] * 2500)
    [holder] = await claim(connection, worker, 1)
    free = [await insert(connection) for _ in range(10)]
    async with connect(database, name="handler") as handler, handler.transaction():
        await handler.execute("update reactor.jobs set progress = 0.5 where id = $1", holder.id)
        assert [job.id for job in await claim(connection, worker, 10)] == free
        assert await parked(connection) == 2499


async def test_a_scope_whose_finished_job_is_locked_is_claimed_soon_after(
    connection: Connection, worker: Worker, database: str, row: Row
) -> None:
    """Nobody notifies when such a lock is released: the claim says that it must come back."""
    await insert(connection, scope="s")
    [first] = await claim(connection, worker, 1)
    await finish(connection, first)
    waiting = await insert(connection, scope="s")
    async with connect(database, name="operator") as operator, operator.transaction():
        await operator.execute("select from reactor.jobs where id = $1 for update", first.id)
        assert await claim_once(connection, worker, 10) == ([], Again.LATER, None)
        assert (await row(waiting))["phase"] == "ready"
    [job] = (await claim_once(connection, worker, 10)).jobs
    assert job.id == waiting
    assert not (await row(first.id))["is_current"]


async def test_a_pod_comes_back_for_what_was_locked_without_a_poll(
    connection: Connection, database: str, running: Running, row: Row, registry: Registry
) -> None:
    @registry.register("work")
    async def work(job: Job) -> None:
        pass

    async with running(poll_seconds=0) as loop:
        first = await insert(connection, scope="s")
        await until(lambda: completed(row, first))
        async with connect(database, name="operator") as operator, operator.transaction():
            await operator.execute("select from reactor.jobs where id = $1 for update", first)
            second = await insert(connection, scope="s")
            claims = loop.counts.claims
            await until(lambda: loop.counts.claims > claims + 8)  # the rechecks that follow a notification are over
            assert (await row(second))["state"] == "pending"
        await until(lambda: completed(row, second))


async def completed(row: Row, job_id: int) -> bool:
    return bool((await row(job_id))["state"] == "completed")


async def test_a_release_that_finds_the_scope_locked_leaves_it_to_the_next_claim(
    connection: Connection, worker: Worker, database: str
) -> None:
    first, second = [await insert(connection, scope="s") for _ in range(2)]
    [job] = await claim(connection, worker, 2)
    assert await parked(connection) == 1
    async with connect(database, name="claim") as other, other.transaction():
        await other.fetch("select reactor.lock_scopes('{s}')")
        await finish(connection, job)  # waits for nothing
        assert await connection.fetchval("select array_agg(scope) from reactor.freed_scopes") == ["s"]
        assert await claim_once(connection, worker, 10) == ([], Again.LATER, None)
    assert [job.id for job in await claim(connection, worker, 10)] == [second]
    assert await connection.fetchval("select count(*) from reactor.freed_scopes") == 0
    assert first == job.id


async def test_a_release_that_finds_the_next_job_locked_leaves_it_to_the_next_claim(
    connection: Connection, worker: Worker, database: str
) -> None:
    _, second = [await insert(connection, scope="s") for _ in range(2)]
    [job] = await claim(connection, worker, 2)
    async with connect(database, name="operator") as other, other.transaction():
        await other.execute("select from reactor.jobs where id = $1 for update", second)
        await finish(connection, job)
        assert await parked(connection) == 1
    assert [job.id for job in await claim(connection, worker, 10)] == [second]


async def test_the_oldest_job_of_a_scope_is_claimed_also_where_a_claim_met_a_newer_one(
    connection: Connection, worker: Worker, database: str
) -> None:
    """Otherwise an old request could run last, and be the current one."""
    older, newer = [await insert(connection, scope="s") for _ in range(2)]
    async with connect(database, name="claim") as other:
        async with other.transaction():
            await other.execute("select from reactor.jobs where id = $1 for no key update", older)
            assert await claim_once(connection, worker, 10) == ([], Again.LATER, None)
        [job] = await claim(other, worker, 10)
        assert job.id == older
    await connection.execute("update reactor.jobs set priority = -1 where id = $1", newer)
    await finish(connection, job)
    assert [job.id for job in await claim(connection, worker, 10)] == [newer]


async def test_a_parked_leader_is_claimed_instead_of_a_ready_job_behind_it(
    connection: Connection, worker: Worker
) -> None:
    older, _ = [await insert(connection, scope="s") for _ in range(2)]
    await park(connection, older)
    assert [job.id for job in await claim(connection, worker, 10)] == [older]


async def test_an_abandoned_job_that_was_parked_behind_itself_runs_when_its_handler_has_stopped(
    connection: Connection, worker: Worker
) -> None:
    job_id = await insert(connection, scope="s")
    assert (job := await claim_one(connection, worker, job_id))
    await abandon(connection, job_id, job.attempt_id, Errored("too slow", 0.001))
    await until(lambda: connection.fetchval("select run_after < clock_timestamp() from reactor.jobs"))
    await connection.fetch(statements.PROMOTE_DUE, 10)
    assert await claim(connection, worker, 10) == []
    assert await parked(connection) == 1
    assert await connection.fetch(statements.RELEASE_STOPPED, worker.id, [job_id])
    assert [job.id for job in await claim(connection, worker, 10)] == [job_id]


async def test_jobs_behind_one_that_only_waits_for_a_slot_are_not_reported(
    connection: Connection, worker: Worker
) -> None:
    """Each scope that is found is an alarm: neither a job that runs nor the next one, which is ready, is a reason."""
    _, second, _ = [await insert(connection, scope="s") for _ in range(3)]
    [job] = await claim(connection, worker, 10)
    assert await parked(connection) == 2
    assert await connection.fetch(statements.UNPARK_SCOPES) == []
    await finish(connection, job)
    assert await parked(connection) == 1
    assert await connection.fetch(statements.UNPARK_SCOPES) == []
    await park(connection, second)
    [found] = await connection.fetch(statements.UNPARK_SCOPES)
    assert found["scopes"] == ["s"]


async def test_freeing_many_scopes_takes_few_entries_of_the_lock_table(connection: Connection, worker: Worker) -> None:
    """20,000 scopes at once filled the lock table of the server, and the sweeper repeated that forever."""
    await submit_many(connection, [NewJob(job_type="work", scope=f"s{n}") for n in range(3000)])
    await park(connection)
    async with connection.transaction():
        [found] = await connection.fetch(statements.UNPARK_SCOPES)
        held = await connection.fetchval("select count(*) from pg_locks where pid = pg_backend_pid()")
    assert held < 100
    assert len(found["scopes"]) == 500
    unparked = [len(found["scopes"])]
    while rows := await connection.fetch(statements.UNPARK_SCOPES):
        unparked.append(len(rows[0]["scopes"]))
    assert unparked == [500] * 6
    async with connection.transaction():
        assert len((await claim_once(connection, worker, 1000)).jobs) == 1000
        assert await connection.fetchval("select count(*) from pg_locks where pid = pg_backend_pid()") < 100


@pytest.mark.parametrize("statement", ["advisory", "advisory_shared"])
async def test_advisory_locks_stop_neither_claims_nor_ends(
    connection: Connection, worker: Worker, database: str, statement: str
) -> None:
    """Any role that may connect can take them: in the class that scopes used, and in that of limited queues."""
    function = {"advisory": "pg_advisory_lock", "advisory_shared": "pg_advisory_lock_shared"}[statement]
    await connection.execute("insert into reactor.queues (name, max_running) values ('default', 5)")
    for _ in range(2):
        await insert(connection, scope="s")
    async with connect(database, name="stranger") as stranger:
        for lock_class in (1919247220, 1919247221):
            for key in ("s", "default"):
                await stranger.execute(f"select {function}({lock_class}, hashtext('{key}'))")
        [first] = await claim(connection, worker, 10)
        await finish(connection, first)
        assert len(await claim(connection, worker, 10)) == 1


async def test_a_job_without_a_lane_does_not_bring_the_oldest_of_its_scope_past_the_limit_of_a_lane(
    connection: Connection, worker: Worker
) -> None:
    await connection.execute("insert into reactor.limits (job_type, lane, max_running) values ('work', '*', 1)")
    await insert(connection, lane="customer=1")
    [holder] = await claim(connection, worker, 1)
    oldest = await insert(connection, lane="customer=1", scope="s")
    assert await claim(connection, worker, 10) == []
    younger = await insert(connection, scope="s")
    assert await claim(connection, worker, 10) == []
    assert await parked(connection) == 1
    for job_id in (oldest, younger):
        await finish(connection, holder)
        [holder] = await claim(connection, worker, 10)
        assert holder.id == job_id


@pytest.mark.parametrize("change", ["cancel", "run_after", "lane"])
async def test_a_job_behind_one_of_another_lane_is_unparked_when_that_one_does_not_come_first_any_more(
    connection: Connection, worker: Worker, change: str
) -> None:
    await connection.execute("insert into reactor.limits (job_type, lane, max_running) values ('work', '*', 0)")
    oldest, younger = await insert(connection, lane="customer=1", scope="s"), await insert(connection, scope="s")
    assert await claim(connection, worker, 10) == []
    assert await parked(connection) == 1
    match change:
        case "cancel":
            await connection.execute("update reactor.jobs set state = 'cancelled' where id = $1", oldest)
        case "run_after":
            await connection.execute(
                "update reactor.jobs set run_after = now() + interval '1 hour' where id = $1", oldest
            )
        case "lane":
            await connection.execute("update reactor.jobs set lane = null where id = $1", oldest)
    first = oldest if change == "lane" else younger
    assert [job.id for job in await claim(connection, worker, 10)] == [first]


async def test_jobs_of_other_queues_do_not_wait_for_one_of_another_lane(connection: Connection, worker: Worker) -> None:
    await connection.execute("insert into reactor.limits (job_type, lane, max_running) values ('work', '*', 0)")
    await insert(connection, lane="customer=1", scope="s")
    await insert(connection, scope="s")
    # Less urgent, so that the claim comes to them after the others.
    others = [await insert(connection, scope="s", queue="mail", priority=5) for _ in range(2)]
    for other in others:
        [job] = await claim(connection, worker, 10)
        assert job.id == other
        await finish(connection, job)


async def test_the_oldest_job_of_a_scope_is_taken_although_another_lane_comes_first(
    connection: Connection, worker: Worker
) -> None:
    others = {await insert(connection, lane=lane) for lane in ("a", "a", "b", "b")}
    done = {job.id for job in await claim(connection, worker, 1)}
    await connection.execute("update reactor.lines set turn = now() + interval '1 hour' where lane = 'b'")
    oldest, younger = await insert(connection, lane="b", scope="s"), await insert(connection, lane="a", scope="s")
    jobs = await claim(connection, worker, 10)
    assert {job.id for job in jobs} == others - done | {oldest}
    await finish(connection, next(job for job in jobs if job.id == oldest))
    assert [job.id for job in await claim(connection, worker, 10)] == [younger]


@pytest.mark.parametrize("how", ["chained", "submitted"])
async def test_a_child_that_has_to_wait_does_not_take_the_turn_of_a_parked_job(
    connection: Connection, worker: Worker, row: Row, how: str
) -> None:
    """Its parent frees the scope in the transaction that creates it, before its dependencies are connected."""
    await insert(connection, scope="s")
    [holder] = await claim(connection, worker, 1)
    behind = await insert(connection, scope="s")
    assert await claim(connection, worker, 1) == []
    assert (await row(behind))["phase"] == "parked"
    first = {"job_type": "other", "queue": "elsewhere"}
    child = {"job_type": "work", "scope": "s", "priority": -5}
    async with connection.transaction():
        if how == "submitted":
            pipeline = json.dumps([first, child | {"depends_on": [1]}])
            await connection.execute("select reactor.submit_pipeline($1)", pipeline)
            await finish(connection, holder)
        else:
            needs = {"depends_on": [{"place": 1, "needs": "completed"}]}
            children = Children([json.dumps(first), json.dumps(child | needs)])
            assert await settle(connection, [Ending(holder.id, holder.attempt_id, Completed(), children)])
    assert await connection.fetchval("select state from reactor.jobs where priority = -5") == "waiting"
    assert (await row(behind))["phase"] == "ready"
    assert [job.id for job in await claim(connection, worker, 1)] == [behind]
