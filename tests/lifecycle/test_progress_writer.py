"""Progress that can't be written: other jobs are not affected."""

import asyncio

from reactor import Context, Job, Registry
from reactor.database.connection import Connection, connect
from reactor.pod.in_process import Reactor
from reactor.testing import run_until_idle
from tests.support.jobs import Row, has_state, insert
from tests.support.sessions import waits_for_a_lock
from tests.support.until import until


async def test_progress_on_a_locked_row_delays_no_other_job(database: str, connection: Connection, row: Row) -> None:
    registry = Registry()
    is_locked, is_written = asyncio.Event(), asyncio.Event()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        await is_locked.wait()
        await ctx.progress(0.5, "half")
        is_written.set()

    @registry.register("quick")
    async def quick(job: Job) -> None: ...

    async with (
        Reactor(database, registry=registry, grace_seconds=0),
        connect(database, name="operator") as operator,
    ):
        job_id = await insert(connection)
        await until(lambda: has_state(row, job_id, "running"))
        async with operator.transaction():
            await operator.execute("select from reactor.jobs where id = $1 for update", job_id)
            is_locked.set()
            await until(lambda: waits_for_a_lock(connection, "reactor settle"))
            other = await insert(connection, "quick")
            await until(lambda: has_state(row, other, "completed"))
            assert not is_written.is_set()
        await until(lambda: has_state(row, job_id, "completed"))
        assert (await row(job_id))["progress"] == 1


async def test_progress_that_the_database_refuses_fails_only_its_own_job(
    database: str, connection: Connection, row: Row, registry: Registry
) -> None:
    """A refusal, for example by a user's trigger, must not end the worker."""
    await connection.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'not here'; end $$;"
        "create trigger refuse before update of progress on reactor.jobs for each row "
        "when (new.progress = 0.25 and new.progress is distinct from old.progress) execute function refuse()"
    )

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        await ctx.progress(job.payload["progress"])

    ids = [
        await connection.fetchval(
            "insert into reactor.jobs (job_type, payload) values ('work', $1) returning id",
            f'{{"progress": {progress}}}',
        )
        for progress in (0.5, 0.25, 0.75)
    ]
    await run_until_idle(database, registry)
    assert [(await row(job_id))["state"] for job_id in ids] == ["completed", "failed", "completed"]
    assert "not here" in (await row(ids[1]))["error"]
