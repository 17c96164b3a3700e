"""Pruning removes whole pipelines that ended long ago, and nothing else."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from reactor import Job, JobState, Registry
from reactor.client.submit import NewJob, submit_many
from reactor.database.connection import Connection, connect
from reactor.errors import RetentionInvalid
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import settle
from reactor.operate.audit import Operator
from reactor.operate.prune import Pruned, Retention, prune, prune_and_audit, schedule_pruning
from reactor.operate.schedules import list_schedules
from reactor.outcome import Completed, Ending
from reactor.pod.in_process import Reactor
from reactor.testing import run_until_idle
from tests.support.until import until

ANNE = Operator("anne", "test")
MONTH = Retention(30)


async def ended(connection: Connection, days: float = 40, state: str = "completed", **columns: Any) -> int:
    """Inserts a job that ended `days` ago."""
    columns = {"job_type": "work"} | columns
    names, places = ", ".join(columns), ", ".join(f"${n}" for n in range(3, len(columns) + 3))
    statement = (
        f"insert into reactor.jobs (state, created_at, finished_at, {names}) "
        f"select $1, t, t, {places} from (values (clock_timestamp() - make_interval(secs => $2 * 86400))) v (t) "
        "returning id"
    )
    job_id: int = await connection.fetchval(statement, state, days, *columns.values())
    return job_id


async def pruned(connection: Connection, retention: Retention = MONTH, **options: Any) -> Pruned:
    return [total async for total in prune(connection, retention, **options)][-1]


async def left(connection: Connection) -> set[int]:
    return {record["id"] for record in await connection.fetch("select id from reactor.jobs")}


async def test_pipelines_older_than_thirty_days_are_removed_and_counted(connection: Connection) -> None:
    """J9: clean-up of jobs older than 30 days, count returned."""
    old, young = await ended(connection, 31), await ended(connection, 29)
    pipeline = await connection.fetchval("select gen_random_uuid()")
    for _ in range(3):
        await ended(connection, 31, pipeline_id=pipeline)
    await connection.execute("insert into reactor.steps (job_id, name, position) values ($1, 'a', 1)", old)
    assert await pruned(connection, dry_run=True) == Pruned(2, 4)
    assert await pruned(connection) == Pruned(2, 4)
    assert await left(connection) == {young}
    assert await connection.fetchval("select count(*) from reactor.steps") == 0
    assert await pruned(connection) == Pruned(0, 0)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_pipeline_is_counted_once_with_small_batches(connection: Connection, dry_run: bool) -> None:
    pipelines = [await connection.fetchval("select gen_random_uuid()") for _ in range(3)]
    for _ in range(4):
        for pipeline in pipelines:
            await ended(connection, pipeline_id=pipeline)
    assert await pruned(connection, batch=2, dry_run=dry_run) == Pruned(3, 12)


@pytest.mark.parametrize("state", ["waiting", "pending", "running"])
async def test_a_pipeline_with_an_unfinished_job_is_kept(connection: Connection, state: str) -> None:
    pipeline = await connection.fetchval("select gen_random_uuid()")
    ids = {await ended(connection, pipeline_id=pipeline)}
    statement = "insert into reactor.jobs (job_type, state, pipeline_id) values ('work', $1, $2) returning id"
    ids.add(await connection.fetchval(statement, state, pipeline))
    ids.add(await ended(connection, pipeline_id=pipeline))
    await pruned(connection)
    assert await left(connection) == ids


async def test_a_pipeline_with_a_recent_job_is_kept(connection: Connection) -> None:
    pipeline = await connection.fetchval("select gen_random_uuid()")
    ids = {await ended(connection, days, pipeline_id=pipeline) for days in (40, 1)}
    await pruned(connection)
    assert await left(connection) == ids


async def test_the_newest_run_of_a_scope_is_kept_by_default(connection: Connection) -> None:
    await ended(connection, scope="s")
    current = await ended(connection, scope="s", is_current=True)
    assert await pruned(connection) == Pruned(1, 1)
    assert await left(connection) == {current}
    assert await pruned(connection, Retention(30, keep_current=False)) == Pruned(1, 1)


async def test_only_pipelines_that_ended_in_the_given_states_are_removed(connection: Connection) -> None:
    ids = {state: await ended(connection, state=state) for state in ("completed", "partial", "failed", "cancelled")}
    mixed = await connection.fetchval("select gen_random_uuid()")
    both = {await ended(connection, state=state, pipeline_id=mixed) for state in ("completed", "failed")}
    assert await pruned(connection, Retention(30, (JobState.COMPLETED,))) == Pruned(1, 1)
    assert await left(connection) == {*both, ids["partial"], ids["failed"], ids["cancelled"]}
    assert await pruned(connection, Retention(30, (JobState.COMPLETED, JobState.FAILED))) == Pruned(2, 3)


async def test_a_cancelled_job_whose_handler_has_not_stopped_is_kept(connection: Connection) -> None:
    job_id = await ended(connection, state="cancelled")
    await connection.execute("update reactor.jobs set worker_id = gen_random_uuid()")
    await pruned(connection)
    assert await left(connection) == {job_id}


async def test_batches_of_kept_pipelines_do_not_stop_pruning(connection: Connection) -> None:
    kept = {await ended(connection, scope=f"s{n}", is_current=True) for n in range(7)}
    await ended(connection)
    assert await pruned(connection, batch=2) == Pruned(1, 1)
    assert await left(connection) == kept


@pytest.mark.parametrize("commits", [True, False])
async def test_a_job_that_is_being_retried_is_kept_and_blocks_nothing(
    connection: Connection, database: str, commits: bool
) -> None:
    retried, other = await ended(connection, state="failed"), await ended(connection)
    async with connect(database, name="operator") as operator:
        transaction = operator.transaction()
        await transaction.start()
        await operator.fetch("select reactor.retry($1)", [retried])
        async with asyncio.timeout(20):
            assert await pruned(connection) == Pruned(1, 1)
        await (transaction.commit() if commits else transaction.rollback())
    assert await left(connection) == {retried}
    assert other not in await left(connection)
    assert await pruned(connection) == (Pruned(0, 0) if commits else Pruned(1, 1))


async def test_claims_continue_while_old_pipelines_are_removed(
    database: str, connection: Connection, worker: Worker
) -> None:
    """Jobs are claimed and settled during each batch of 100 of 2,000 old pipelines."""
    await connection.execute(
        "insert into reactor.jobs (job_type, state, created_at, finished_at) "
        "select 'work', 'completed', t, t from generate_series(1, 2000), (values (now() - interval '40 days')) v (t)"
    )
    async with connect(database, name="pruner") as pruner:
        for _ in range(20):
            async with pruner.transaction():
                await pruner.fetch("select reactor.prune(86400, '{completed}', 100, true)")
                await submit_many(connection, [NewJob(job_type="work", scope=f"s{n}") for n in range(5)])
                async with asyncio.timeout(20):
                    jobs = await claim(connection, worker, 10)
                    assert len(jobs) == 5
                    settled = await settle(connection, [Ending(j.id, j.attempt_id, Completed()) for j in jobs])
                    assert len(settled) == 5
    assert (
        await connection.fetchval("select count(*) from reactor.jobs where finished_at < now() - interval '1 day'") == 0
    )


async def test_a_batch_never_reads_the_whole_table(connection: Connection) -> None:
    for _ in range(8):  # often enough for the server to cache a generic plan
        await ended(connection)
        await pruned(connection)
    await ended(connection)
    await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 5000)")
    async with connection.transaction():
        await connection.fetch("select reactor.prune(86400, '{completed}', 10, true)")
        read = "select seq_scan, idx_tup_fetch from pg_stat_xact_user_tables where relid = 'reactor.jobs'::regclass"
        stats = await connection.fetchrow(read)
        assert stats
        assert stats["seq_scan"] == 0
        assert stats["idx_tup_fetch"] < 100


async def large_pipeline(connection: Connection, jobs: int, **unusual: str) -> UUID:
    """A pipeline of old completed jobs. `unusual`: the states of some of them, as job_7="failed"."""
    pipeline: UUID = await connection.fetchval(
        "with ended as (insert into reactor.jobs (job_type, state, created_at, finished_at, pipeline_id) "
        "select 'work', 'completed', t, t, p from generate_series(1, $1), "
        "(values (now() - interval '40 days', gen_random_uuid())) v (t, p) returning pipeline_id) "
        "select pipeline_id from ended limit 1",
        jobs,
    )
    first = await connection.fetchval("select min(id) from reactor.jobs where pipeline_id = $1", pipeline)
    for name, state in unusual.items():
        number = first + int(name.removeprefix("job_")) - 1
        await connection.execute("update reactor.jobs set state = $2 where id = $1", number, state)
    return pipeline


async def rows_read(connection: Connection) -> int:
    """Also in earlier transactions of the session whose statistics were not reported yet: compare two values."""
    read = "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relid = 'reactor.jobs'::regclass"
    rows: int = await connection.fetchval(read)
    return rows


async def test_a_large_pipeline_with_an_open_job_is_read_once_and_not_locked(connection: Connection) -> None:
    await large_pipeline(connection, 4000, job_4000="running")
    async with connection.transaction():
        before = await rows_read(connection)
        assert await pruned(connection, batch=100) == Pruned(0, 0)
        assert await connection.fetchval("select txid_current_if_assigned()") is None
        assert await rows_read(connection) - before < 8 * 4000


@pytest.mark.parametrize("unusual", [{}, {"job_7": "failed"}, {"job_700": "cancelled"}, {"job_1": "partial"}])
async def test_a_large_pipeline_is_removed_in_small_transactions_and_keeps_its_state(
    connection: Connection, unusual: dict[str, str]
) -> None:
    pipeline = await large_pipeline(connection, 1000, **unusual, job_900="failed" if unusual else "completed")
    everything = await left(connection)
    state = await connection.fetchval("select state from reactor.pipelines where pipeline_id = $1", pipeline)
    before, pipelines = 0, []
    async for total in prune(connection, Retention(30, archive=True), batch=100):
        assert total.jobs - before <= 103, "a batch, and the last of each state"
        before = total.jobs
        pipelines.append(total.pipelines)
        archived = [r["id"] for r in await connection.fetch("select id from reactor.archive")]
        assert sorted([*archived, *await left(connection)]) == sorted(everything), "each job is in one table"
        if total.pipelines == 0:
            now = await connection.fetchval("select state from reactor.pipelines where pipeline_id = $1", pipeline)
            assert now == state
    assert total == Pruned(1, 1000)
    assert len(pipelines) > 10


@pytest.mark.parametrize("newer_first", [False, True])
async def test_a_large_pipeline_of_cancelled_dependants_is_removed(
    connection: Connection, worker: Worker, newer_first: bool
) -> None:
    """No job is removed while one that needed it is left: a retry would run that one."""
    edges = "select n, n + 1" if newer_first else "select n + 1, n"
    async with connection.transaction():
        await submit_many(connection, [NewJob(job_type="work", pipeline_id=uuid4())] * 300)
        await connection.execute(f"insert into reactor.dependencies {edges} from generate_series(1, 299) n")
    [head] = await claim(connection, worker, 10)
    await connection.fetch("select reactor.cancel($1, 'no')", [head.id])
    await connection.execute(
        "update reactor.jobs set worker_id = null, created_at = created_at - interval '40 days', "
        "finished_at = finished_at - interval '40 days'"
    )
    assert await connection.fetchval("select count(*) from reactor.jobs where state = 'cancelled'") == 300
    assert await pruned(connection, batch=50) == Pruned(1, 300)


@pytest.mark.parametrize("same_pipeline", [False, True])
async def test_a_job_that_another_one_comes_to_need_while_it_is_removed_stays(
    connection: Connection, database: str, same_pipeline: bool
) -> None:
    """The producer commits after the removal has read the jobs, and before it locks them. A retry may run both."""
    needed = await ended(connection, state="failed")
    pipeline = await connection.fetchval("select pipeline_id from reactor.jobs")
    await connection.execute(
        """
        create or replace function reactor.is_prunable(finished_at timestamptz, state text, worker_id uuid,
            is_current boolean, before timestamptz, states text[], keep_current boolean)
            returns boolean language plpgsql as $$
        begin
            perform pg_advisory_xact_lock(1);
            return true;
        end
        $$
        """
    )
    async with connect(database, name="pod") as pod:
        await connection.execute("select pg_advisory_lock(1)")
        prune_whole = "select jobs from reactor.prune_whole(array[$1::uuid], now(), '{failed}', false, false)"
        removal = asyncio.create_task(pod.fetchval(prune_whole, pipeline))
        await until(lambda: connection.fetchval("select exists (select from pg_locks where not granted)"))
        async with connection.transaction():
            job = NewJob(job_type="work", **({"pipeline_id": pipeline} if same_pipeline else {}))
            [dependant] = await submit_many(connection, [job])
            await connection.execute("insert into reactor.dependencies values ($1, $2)", dependant.id, needed)
        await connection.execute("select pg_advisory_unlock(1)")
        assert await removal == 0
    assert await left(connection) == {needed, dependant.id}


async def test_reading_for_a_large_pipeline_is_linear(connection: Connection) -> None:
    await large_pipeline(connection, 4000, job_2000="failed")
    async with connection.transaction():
        before = await rows_read(connection)
        assert await pruned(connection, batch=100) == Pruned(1, 4000)
        assert await rows_read(connection) - before < 10 * 4000


async def test_several_pipelines_share_a_batch_up_to_its_size(connection: Connection) -> None:
    for _ in range(10):
        await large_pipeline(connection, 30)
    steps = [total.jobs async for total in prune(connection, MONTH, batch=100)]
    assert steps[-1] == 300
    assert max(after - before for before, after in zip([0, *steps], steps, strict=False)) == 90


async def test_a_job_retried_while_its_pipeline_is_removed_stays_with_what_it_depended_on(
    connection: Connection,
) -> None:
    pipeline = await large_pipeline(connection, 300, job_1="failed", job_200="failed")
    retried = min(await left(connection)) + 199
    removal = prune(connection, MONTH, batch=100)
    assert await anext(removal) == Pruned(0, 0), "it was found, and is removed from the next transaction on"
    await connection.fetch("select reactor.retry($1)", [retried])
    assert [total async for total in removal][-1] == Pruned(0, 0)
    assert await connection.fetchval("select jobs from reactor.pipelines where pipeline_id = $1", pipeline) == 300
    await connection.execute(
        "update reactor.jobs set state = 'failed', finished_at = created_at where id = $1", retried
    )
    assert await pruned(connection, batch=100) == Pruned(1, 300)


async def test_the_job_that_stands_for_a_state_keeps_the_rest_when_it_is_retried(connection: Connection) -> None:
    await large_pipeline(connection, 400, job_300="failed")
    failed = min(await left(connection)) + 299
    removal = prune(connection, MONTH, batch=100)
    while (await anext(removal)).jobs < 100:
        pass
    await connection.fetch("select reactor.retry($1)", [failed])
    assert [total.jobs async for total in removal][-1] == 100
    assert len(await left(connection)) == 300


async def test_a_job_inserted_while_its_pipeline_is_removed_stays_in_a_pipeline_of_the_same_state(
    connection: Connection,
) -> None:
    pipeline = await large_pipeline(connection, 300, job_150="failed")
    removal = prune(connection, MONTH, batch=100)
    while (await anext(removal)).jobs < 100:
        pass
    inserted = "insert into reactor.jobs (job_type, state, finished_at, pipeline_id) values ('work', $1, now(), $2)"
    await connection.execute(inserted, "completed", pipeline)
    async for total in removal:
        assert total.pipelines == 0
    record = await connection.fetchrow("select state, failed, completed from reactor.pipelines")
    assert record
    assert (record["state"], record["failed"]) == ("partial", 1)


async def test_old_jobs_are_found_behind_recent_ones_with_lower_ids(connection: Connection) -> None:
    await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 30)")
    for _ in range(3):
        await ended(connection)
        await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 30)")
    assert await pruned(connection, batch=10, dry_run=True) == Pruned(3, 3)
    assert await pruned(connection, batch=10) == Pruned(3, 3)


async def test_most_recent_jobs_are_not_read(connection: Connection) -> None:
    for _ in range(30):
        await ended(connection)
    await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 20000)")
    await connection.execute("vacuum analyze reactor.jobs")
    async with connection.transaction():
        before = await rows_read(connection)
        assert await pruned(connection, batch=10) == Pruned(30, 30)
        assert await rows_read(connection) - before < 12000, "the first pages of the table, and the last ones"


async def test_a_job_whose_dependant_still_waits_is_kept(connection: Connection) -> None:
    """The dependant may be in another pipeline, and released later."""
    async with connection.transaction():
        await submit_many(connection, [NewJob(job_type="work") for _ in range(2)])
        await connection.execute("insert into reactor.dependencies values (2, 1)")
    await connection.execute("alter table reactor.jobs disable trigger after_update")
    await connection.execute(
        "update reactor.jobs set state = 'completed', finished_at = now() - interval '40 days' where id = 1"
    )
    assert await pruned(connection) == Pruned(0, 0)
    await connection.execute("update reactor.dependencies set resolved = true")
    assert await pruned(connection) == Pruned(1, 1)


async def test_an_operators_prune_is_audited_with_its_result(connection: Connection) -> None:
    await ended(connection)
    async for total in prune_and_audit(connection, MONTH, ANNE):
        assert total == Pruned(1, 1)
    [note] = await connection.fetch("select who, what, details from reactor.audit")
    assert (note["who"], note["what"]) == ("anne", "prune")
    details = json.loads(note["details"])
    assert (details["days"], details["pipelines"], details["jobs"], details["finished"]) == (30, 1, 1, True)


async def test_an_interrupted_prune_is_audited_too(connection: Connection) -> None:
    await ended(connection)
    batches = prune_and_audit(connection, MONTH, ANNE)
    await anext(batches)
    await batches.aclose()  # type: ignore[attr-defined]
    note = json.loads(await connection.fetchval("select details from reactor.audit"))
    assert (note["pipelines"], note["finished"]) == (1, False)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"days": -1},
        {"days": "30"},
        {"days": 30, "states": ["running"]},
        {"days": 30, "states": []},
        {"days": 30, "archive": "yes"},
        {"days": 30, "colour": "red"},
    ],
)
def test_an_invalid_retention_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(RetentionInvalid):
        Retention.from_payload(payload)


async def test_recurring_pruning_needs_no_handler_of_the_app(database: str, connection: Connection) -> None:
    registry = Registry()

    @registry.register("work")
    async def work(job: Job) -> None:
        pass

    old, young = await ended(connection), await ended(connection, 2)
    async with Reactor(database, registry=registry, poll_seconds=0) as reactor:
        await until(lambda: reactor.is_well)
        await schedule_pruning(connection, "day", MONTH, ANNE)
        [schedule] = await list_schedules(connection)
        assert (schedule["name"], schedule["cron"], schedule["payload"]["days"]) == ("reactor.prune", "17 3 * * *", 30)
        await connection.execute("update reactor.schedules set next_run_at = clock_timestamp()")

        async def is_pruned() -> bool:
            return old not in await left(connection)

        await until(is_pruned)

        async def has_ended() -> Any:
            return await connection.fetchval(
                "select result from reactor.jobs where state = 'completed' and id > $1 order by id", young
            )

        assert json.loads(await until(has_ended)) == {"pipelines": 1, "jobs": 1}


async def test_a_prune_job_with_an_invalid_payload_fails_with_a_reason(database: str, connection: Connection) -> None:
    await submit_many(connection, [NewJob(job_type="reactor.prune", payload={"days": -1})])
    await run_until_idle(database, Registry())
    record = await connection.fetchrow("select state, error from reactor.jobs")
    assert record
    assert record["state"] == "failed"
    assert "days is -1" in record["error"]


async def test_archived_jobs_are_in_the_partition_of_the_month_they_ended_in(connection: Connection) -> None:
    """They are moved in one transaction, so they are always in exactly one of the two tables."""
    job_id = await ended(connection, payload='{"a": 1}')
    await connection.execute("insert into reactor.steps (job_id, name, position) values ($1, 'a', 1)", job_id)
    times = [datetime(2025, 12, 31, 23, 59, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]
    for moment in times:
        other = await ended(connection)
        await connection.execute("update reactor.jobs set finished_at = $2 where id = $1", other, moment)
    await connection.execute("set role reactor_worker")
    await connection.execute("set timezone to 'America/New_York'")
    assert await pruned(connection, Retention(30, archive=True)) == Pruned(3, 3)
    await connection.execute("reset role")
    rows = await connection.fetch(
        "select tableoid::regclass::text as part, id, job, steps, attempts from reactor.archive order by id"
    )
    assert [row["part"] for row in rows[1:]] == ["reactor.archive_2025_12", "reactor.archive_2026_01"]
    assert json.loads(rows[0]["job"])["payload"] == {"a": 1}
    assert json.loads(rows[0]["steps"])[0]["name"] == "a"
    assert rows[0]["attempts"] is None
    assert await left(connection) == set()
    await connection.execute("drop table reactor.archive_2025_12")
    await ended(connection)
    assert await pruned(connection, Retention(30, archive=True)) == Pruned(1, 1)


async def test_a_role_without_privileges_can_not_stop_the_archive(database: str, connection: Connection) -> None:
    """Anyone who can connect can take any advisory lock."""
    await ended(connection)
    async with connect(database, name="stranger") as stranger:
        await stranger.execute("select pg_advisory_lock(hashtext('reactor.create_archive_partition'))")
        async with asyncio.timeout(20):
            assert await pruned(connection, Retention(30, archive=True)) == Pruned(1, 1)


async def test_concurrent_archivers_create_a_partition_once(database: str, connection: Connection) -> None:
    for _ in range(40):
        await ended(connection)
    retention = Retention(30, archive=True)
    async with connect(database, name="other") as other:
        totals = await asyncio.gather(pruned(connection, retention, batch=3), pruned(other, retention, batch=3))
    assert await connection.fetchval("select count(*) from reactor.archive") == sum(total.jobs for total in totals)
    await pruned(connection, retention)
    assert await connection.fetchval("select count(distinct id) from reactor.archive") == 40
