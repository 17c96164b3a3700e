"""Pipelines: submitted as a whole, with one derived state, cancelled and retried as a whole."""

import asyncio
import json
import re
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest

from reactor import Context, Fail, Job, JobState, Partial, Pipeline, Registry, SyncContext, chain_job
from reactor.database.connection import Connection, connect
from reactor.errors import JobInvalid, PipelineUnknown
from reactor.operate import Operator, cancel_pipeline, retry_pipeline
from reactor.queries.pipelines import find_pipeline
from reactor.testing import Databases, run_until_idle
from tests.support.jobs import Row

ME = Operator("me", "test")


async def states(connection: Connection, pipeline_id: UUID) -> list[str]:
    rows = await connection.fetch("select state from reactor.jobs where pipeline_id = $1 order by id", pipeline_id)
    return [row["state"] for row in rows]


async def test_a_dag_is_submitted_as_a_whole_and_run_in_order(
    database: str, connection: Connection, registry: Registry
) -> None:
    """D8, D9: ingestion, a recalculation per year, then a sum over the results of all years."""
    ran: list[str] = []

    @registry.register("read")
    async def read(job: Job) -> dict[str, Any]:
        ran.append("read")
        return {"rows": 7}

    @registry.register("year")
    async def year(job: Job, ctx: Context) -> dict[str, Any]:
        ran.append("year")
        [source] = await ctx.upstream()
        return {"year": job.payload["year"], "rows": source.result}

    @registry.register("sum")
    def total(job: Job, ctx: SyncContext) -> dict[str, Any]:
        ran.append("sum")
        return {"years": [one.result and one.result["year"] for one in ctx.upstream()]}

    pipeline = Pipeline()
    first = pipeline.job("read")
    years = [pipeline.job("year", {"year": n}, depends_on=[first]) for n in (2024, 2025, 2026)]
    pipeline.job("sum", depends_on=years)
    submitted = await pipeline.submit(connection)
    assert submitted.outcome == "created"
    assert await states(connection, submitted.id) == ["pending", "waiting", "waiting", "waiting", "waiting"]
    await run_until_idle(database, registry)
    assert ran == ["read", "year", "year", "year", "sum"]
    assert await states(connection, submitted.id) == ["completed"] * 5
    result = await connection.fetchval("select result from reactor.jobs where id = $1", submitted.jobs[-1])
    assert json.loads(result) == {"years": [2024, 2025, 2026]}


async def test_a_pipeline_is_submitted_completely_or_not_at_all(connection: Connection) -> None:
    """J6: the result names the blocking job."""
    holder = await connection.fetchval(
        "insert into reactor.jobs (job_type, scope, exclusive) values ('x', 'table', true) returning id"
    )
    pipeline = Pipeline()
    pipeline.job("first")
    pipeline.job("second", scope="table", exclusive=True)
    submitted = await pipeline.submit(connection)
    assert (submitted.outcome, submitted.jobs) == ("busy", [])
    assert submitted.in_the_way
    assert submitted.in_the_way.id == holder
    assert await connection.fetchval("select count(*) from reactor.jobs") == 1


async def test_a_repeated_pipeline_is_created_once(connection: Connection) -> None:
    """J7: the second call returns the first pipeline."""
    answers = []
    for _ in range(2):
        pipeline = Pipeline()
        first = pipeline.job("first", idempotency_key="trigger-1")
        pipeline.job("second", depends_on=[first])
        answers.append(await pipeline.submit(connection))
    assert [answer.outcome for answer in answers] == ["created", "existing"]
    assert answers[0].id == answers[1].id
    assert await connection.fetchval("select count(*) from reactor.jobs") == 2


async def test_ten_concurrent_submits_create_one_pipeline(database: str, connection: Connection) -> None:
    """J6, J7: one succeeds, and the others receive its pipeline."""

    async def trigger() -> tuple[str, UUID]:
        async with connect(database, name="test") as own:
            pipeline = Pipeline()
            first = pipeline.job("first", scope="table", exclusive=True)
            pipeline.job("second", depends_on=[first])
            submitted = await pipeline.submit(own)
            return submitted.outcome, submitted.id

    answers = await asyncio.gather(*(trigger() for _ in range(10)))
    assert sorted(outcome for outcome, _ in answers) == ["busy"] * 9 + ["created"]
    assert len({pipeline_id for _, pipeline_id in answers}) == 1
    assert await connection.fetchval("select count(*) from reactor.jobs") == 2


def test_a_pipeline_is_submitted_through_a_synchronous_driver(databases: Databases) -> None:
    pipeline = Pipeline()
    pipeline.job("first")
    with asyncio.Runner() as runner:
        clone = databases.clone()
        url = runner.run(clone.__aenter__())
        with psycopg.connect(url) as connection:
            assert pipeline.submit(connection).outcome == "created"
        runner.run(clone.__aexit__(None, None, None))


async def test_a_job_can_depend_on_an_existing_job_and_on_any_end(
    database: str, connection: Connection, registry: Registry
) -> None:
    @registry.register("fails", max_attempts=1)
    async def fails() -> None:
        raise Fail("no")

    @registry.register("clean_up")
    async def clean_up(ctx: Context) -> dict[str, Any]:
        return {"saw": [one.state for one in await ctx.upstream()]}

    before = await connection.fetchval("insert into reactor.jobs (job_type) values ('fails') returning id")
    pipeline = Pipeline()
    also = pipeline.job("fails")
    pipeline.job("clean_up", after_end_of=[before, also])
    pipeline.job("never", depends_on=[also])
    submitted = await pipeline.submit(connection)
    await run_until_idle(database, registry)
    assert await states(connection, submitted.id) == ["failed", "completed", "cancelled"]
    last = await connection.fetchrow("select result, error from reactor.jobs where id = $1", submitted.jobs[1])
    assert last
    assert json.loads(last["result"]) == {"saw": ["failed", "failed"]}
    cancelled = await connection.fetchval("select error from reactor.jobs where id = $1", submitted.jobs[2])
    assert str(submitted.jobs[0]) in cancelled


async def test_a_pipeline_is_inserted_with_plain_sql(connection: Connection) -> None:
    before = await connection.fetchval("insert into reactor.jobs (job_type) values ('before') returning id")
    jobs = [
        {"job_type": "a"},
        {"job_type": "b", "depends_on": [1]},
        {"job_type": "c", "depends_on": None},
        {"job_type": "d", "depends_on": [2, {"place": 2, "needs": "finished"}, {"id": before, "needs": "finished"}]},
    ]
    made = await connection.fetch("select * from reactor.submit_pipeline($1)", json.dumps(jobs))
    assert [(row["place"], row["outcome"]) for row in made] == [(place, "created") for place in (1, 2, 3, 4)]
    assert len({row["pipeline_id"] for row in made}) == 1
    first, second, _, last = (row["id"] for row in made)
    edges = await connection.fetch("select job_id, depends_on, needs from reactor.dependencies order by 1, 2")
    # A job that depends on another one in both ways waits for its completion.
    assert list(map(tuple, edges)) == [
        (second, first, "completed"),
        (last, before, "finished"),
        (last, second, "completed"),
    ]


@pytest.mark.parametrize("need", ["1", '{"place": 1}', '[{"place": 1}]'])
async def test_a_single_dependency_needs_no_brackets(connection: Connection, need: str) -> None:
    jobs = f'[{{"job_type": "a"}}, {{"job_type": "b", "depends_on": {need}}}]'
    await connection.fetch("select * from reactor.submit_pipeline($1)", jobs)
    states = await connection.fetch("select state from reactor.jobs order by id")
    assert [r["state"] for r in states] == ["pending", "waiting"]


@pytest.mark.parametrize(
    "need",
    [
        *("0", "4", "1.5", '"x"', "[1]", "{}", "null", '{"place": 9}', '{"place": 1.5}', '{"place": "1"}'),
        *(
            '{"id": 0}',
            '{"id": 1e30}',
            '{"id": 1, "place": 2}',
            '{"if": 2, "place": 1}',
            '{"needs": "soon", "place": 1}',
        ),
    ],
)
async def test_an_invalid_dependency_is_refused_with_a_hint(connection: Connection, need: str) -> None:
    jobs = f'[{{"job_type": "a"}}, {{"job_type": "b", "depends_on": [{need}]}}]'
    said = re.escape(f"a job can't depend on {need}").replace("1e30", "1.*")
    with pytest.raises(asyncpg.CheckViolationError, match=said) as refused:
        await connection.fetch("select * from reactor.submit_pipeline($1)", jobs)
    assert "place" in (refused.value.hint or "")
    assert await connection.fetchval("select count(*) from reactor.jobs") == 0


async def test_a_cycle_in_a_pipeline_is_refused(connection: Connection) -> None:
    jobs = '[{"job_type": "a", "depends_on": [2]}, {"job_type": "b", "depends_on": [1]}]'
    with pytest.raises(asyncpg.PostgresError, match="depend on each other"):
        await connection.fetch("select * from reactor.submit_pipeline($1)", jobs)


async def test_an_invalid_pipeline_is_refused_before_it_is_sent(connection: Connection) -> None:
    with pytest.raises(JobInvalid, match="no job"):
        await Pipeline().submit(connection)
    other = Pipeline().job("elsewhere")
    with pytest.raises(JobInvalid, match="another pipeline"):
        Pipeline().job("here", depends_on=[other])
    with pytest.raises(JobInvalid, match="colour"):
        Pipeline().job("here", colour="red")  # type: ignore[call-arg]  # the mistake


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        (["completed", "completed"], "completed"),
        (["completed", "failed"], "partial"),
        (["partial"], "partial"),
        (["failed", "cancelled"], "failed"),
        (["cancelled", "cancelled"], "cancelled"),
        (["completed", "cancelled"], "cancelled"),
        (["completed", "pending"], "running"),
        (["failed", "waiting"], "running"),
    ],
)
async def test_the_state_of_a_pipeline_is_derived_from_its_jobs(
    connection: Connection, ends: list[str], state: str
) -> None:
    """J3, J4, J10: in one query, with counts and progress."""
    pipeline_id = uuid4()
    for end in ends:
        await connection.execute(
            "insert into reactor.jobs (job_type, pipeline_id, state, progress, finished_at) "
            "values ('x', $1, $2::text, 0.5, "
            "case when $2::text in ('completed', 'partial', 'failed', 'cancelled') then now() end)",
            pipeline_id,
            end,
        )
    found = await find_pipeline(connection, pipeline_id)
    assert found["state"] == state
    assert {name: found[name] for name in set(ends)} == {name: ends.count(name) for name in set(ends)}
    is_open = sum(end in ("waiting", "pending", "running") for end in ends)
    assert found["progress"] == pytest.approx((len(ends) - is_open + 0.5 * is_open) / len(ends))
    assert (found["finished_at"] is None) == bool(is_open)


async def test_an_unknown_pipeline_raises_pipeline_unknown(connection: Connection) -> None:
    with pytest.raises(PipelineUnknown):
        await find_pipeline(connection, uuid4())
    with pytest.raises(PipelineUnknown):
        await cancel_pipeline(connection, uuid4(), "why", ME)


async def test_cancel_and_retry_of_a_pipeline_cover_its_jobs(
    database: str, connection: Connection, registry: Registry
) -> None:
    broken = True

    @registry.register("first", max_attempts=1)
    async def first() -> None:
        if broken:
            raise Fail("broken")

    @registry.register("second")
    async def second() -> None: ...

    pipeline = Pipeline()
    start = pipeline.job("first")
    middle = pipeline.job("second", depends_on=[start])
    pipeline.job("second", depends_on=[middle])
    pipeline.job("second")
    submitted = await pipeline.submit(connection)
    await run_until_idle(database, registry)
    assert await states(connection, submitted.id) == ["failed", "cancelled", "cancelled", "completed"]
    assert (await find_pipeline(connection, submitted.id))["state"] == "partial"

    broken = False
    done = await retry_pipeline(connection, submitted.id, ME)
    assert done.jobs.keys() == set(submitted.jobs[:3])
    assert (await find_pipeline(connection, submitted.id))["state"] == "running"
    cancelled = await cancel_pipeline(connection, submitted.id, "stop", ME)
    assert cancelled.jobs.keys() >= {submitted.jobs[0]}
    assert (await find_pipeline(connection, submitted.id))["state"] == "cancelled"
    await retry_pipeline(connection, submitted.id, ME)
    await run_until_idle(database, registry)
    assert await states(connection, submitted.id) == ["completed"] * 4


async def test_ten_thousand_children_are_created_by_one_statement(
    database: str, connection: Connection, registry: Registry, row: Row
) -> None:
    """D9: they are committed with the end of their parent, in its pipeline, and counted there."""

    @registry.register("fan_out")
    async def fan_out(job: Job, ctx: Context) -> None:
        for n in range(10_000):
            await chain_job(ctx, "leaf", {"n": n}, queue="elsewhere")

    @registry.register("none")
    async def none() -> Partial:
        return Partial()

    parent = await connection.fetchval("insert into reactor.jobs (job_type) values ('fan_out') returning id")
    barren = await connection.fetchval("insert into reactor.jobs (job_type) values ('none') returning id")
    worked = await run_until_idle(database, registry)
    assert worked == {JobState.COMPLETED: 1, JobState.PARTIAL: 1}
    children = await connection.fetchrow(
        "select count(*) n, count(distinct xmin::text) commits, count(distinct payload) payloads, "
        "min(xmin::text) as commit "
        "from reactor.jobs where parent_id = $1 and pipeline_id = (select pipeline_id from reactor.jobs where id = $1)",
        parent,
    )
    assert children
    assert (children["n"], children["commits"], children["payloads"]) == (10_000, 1, 10_000)
    assert children["commit"] == await connection.fetchval("select xmin::text from reactor.jobs where id = $1", parent)
    assert (await row(parent))["children"] == 10_000
    assert (await row(barren))["children"] == 0
