"""ctx.chain: handles of children, dependencies among them, what they inherit, and children that a handler submits."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from reactor import Child, Context, Fail, Job, Partial, Pipeline, Registry, SyncContext, submit, submit_many
from reactor.client.submit import NewJob
from reactor.database.connection import Connection, connect
from reactor.errors import JobInvalid
from reactor.testing import run_until_idle
from tests.support.jobs import Row, insert

TOMORROW = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @registry.register("part")
    async def part(job: Job) -> dict[str, Any]:
        if job.payload.get("fails"):
            raise Fail("no such year")
        return job.payload

    @registry.register("sum")
    async def total(ctx: Context) -> dict[str, Any]:
        return {"years": [one.result and one.result["year"] for one in await ctx.upstream()]}

    return registry


async def children(connection: Connection, job_id: int) -> list[dict[str, Any]]:
    rows = await connection.fetch("select * from reactor.jobs where parent_id = $1 order by id", job_id)
    return [dict(row) for row in rows]


async def run(url: str, registry: Registry) -> None:
    async with asyncio.timeout(20):
        await run_until_idle(url, registry)


# Handles


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_a_fan_out_is_followed_by_a_fan_in(
    database: str, connection: Connection, registry: Registry, row: Row, in_transaction: bool
) -> None:
    """D9: how many parts there are is known only to the handler."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async def chain() -> None:
            parts = [await ctx.chain("part", {"year": year}) for year in job.payload["years"]]
            await ctx.chain("sum", depends_on=parts)

        if in_transaction:
            async with ctx.transaction():
                await chain()
        else:
            await chain()

    job_id = (await submit(connection, "work", {"years": [2024, 2025, 2026]})).id
    await run(database, registry)
    assert (await row(job_id))["children"] == 4
    *_, last = await children(connection, job_id)
    assert (last["job_type"], json.loads(last["result"])) == ("sum", {"years": [2024, 2025, 2026]})


async def test_a_plain_handler_chains_with_dependencies_too(
    database: str, connection: Connection, registry: Registry
) -> None:
    @registry.register("work")
    def work(ctx: SyncContext) -> None:
        ctx.chain("sum", depends_on=[ctx.chain("part", {"year": 2024})], inherit=["queue"])

    job_id = await insert(connection, queue="slow")
    await run(database, registry)
    first, last = await children(connection, job_id)
    assert (first["queue"], last["queue"]) == ("default", "slow")
    assert json.loads(last["result"]) == {"years": [2024]}


async def test_a_child_can_depend_on_an_existing_job_and_on_any_end(
    database: str, connection: Connection, registry: Registry
) -> None:
    before = (await submit(connection, "part", {"year": 1999})).id

    @registry.register("work")
    async def work(ctx: Context) -> None:
        fails = await ctx.chain("part", {"fails": True})
        await ctx.chain("sum", depends_on=[before], after_end_of=[fails])
        await ctx.chain("never", depends_on=[fails])
        # Both ways: it waits for the completion.
        await ctx.chain("never", depends_on=[fails], after_end_of=[fails])

    job_id = await insert(connection)
    await run(database, registry)
    _, last, *never = await children(connection, job_id)
    assert (last["state"], json.loads(last["result"])) == ("completed", {"years": [1999, None]})
    assert [one["state"] for one in never] == ["cancelled", "cancelled"]


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_a_handle_has_the_id_after_the_commit(
    database: str, connection: Connection, registry: Registry, in_transaction: bool
) -> None:
    """D17: and what became of it, where a key or an exclusive scope was in its way."""
    held = await submit(connection, "part", idempotency_key="k", run_after=TOMORROW)
    busy = await submit(connection, "part", scope="s", exclusive=True, run_after=TOMORROW)
    handles: list[Child] = []

    @registry.register("work")
    async def work(ctx: Context) -> None:
        if in_transaction:
            async with ctx.transaction():
                pass
        handles.append(await ctx.chain("part"))
        handles.append(await ctx.chain("part", idempotency_key="k"))
        handles.append(await ctx.chain("part", scope="s", exclusive=True))
        assert [(child.id, child.outcome) for child in handles] == [(None, None)] * 3

    job_id = await insert(connection)
    await run(database, registry)
    [created] = await children(connection, job_id)
    assert [child.id for child in handles] == [created["id"], held.id, busy.id]
    assert [child.outcome for child in handles] == ["created", "existing", "busy"]
    assert repr(handles[0]) == f"<Child 'part', id {created['id']}>"


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_a_handle_of_a_failed_attempt_has_no_id(
    database: str, connection: Connection, registry: Registry, in_transaction: bool
) -> None:
    handles: list[Child] = []

    @registry.register("work", max_attempts=1)
    async def work(ctx: Context) -> None:
        if in_transaction:
            async with ctx.transaction():
                pass
        handles.append(await ctx.chain("part", priority=5000))  # the database refuses it

    await insert(connection)
    await run(database, registry)
    assert [(child.id, child.outcome) for child in handles] == [(None, None)]


async def test_what_depends_on_a_child_that_was_not_created_waits_for_the_job_in_its_way(
    database: str, connection: Connection, registry: Registry
) -> None:
    """A recalculation that runs already, for example: the sum needs its result."""
    held = await submit(connection, "part", {"year": 1998}, idempotency_key="k", run_after=TOMORROW)
    busy = await submit(connection, "part", {"year": 1999}, scope="s", exclusive=True, run_after=TOMORROW)

    @registry.register("work")
    async def work(ctx: Context) -> None:
        parts = [
            await ctx.chain("part", {"year": 2000}),
            await ctx.chain("part", {"year": 2001}, idempotency_key="k"),
            await ctx.chain("part", {"year": 2002}, scope="s", exclusive=True),
        ]
        await ctx.chain("sum", depends_on=parts)

    job_id = await insert(connection)
    await run(database, registry)
    assert [child["state"] for child in await children(connection, job_id)] == ["completed", "waiting"]
    await run_until_idle(database, registry, skip_delays=True)
    created, last = await children(connection, job_id)
    assert json.loads(last["result"]) == {"years": [1998, 1999, 2000]}
    needs = await connection.fetch("select depends_on from reactor.dependencies where job_id = $1", last["id"])
    assert {one["depends_on"] for one in needs} == {held.id, busy.id, created["id"]}


async def test_a_child_that_exists_keeps_its_own_dependencies(
    database: str, connection: Connection, registry: Registry
) -> None:
    held = await submit(connection, "sum", idempotency_key="k", run_after=TOMORROW)

    @registry.register("work")
    async def work(ctx: Context) -> None:
        await ctx.chain("sum", idempotency_key="k", depends_on=[await ctx.chain("part", {"year": 2000})])

    job_id = await insert(connection)
    await run(database, registry)
    assert len(await children(connection, job_id)) == 1
    assert await connection.fetchval("select count(*) from reactor.dependencies where job_id = $1", held.id) == 0


async def test_an_undone_child_can_not_be_depended_on(
    database: str, connection: Connection, registry: Registry
) -> None:
    """Another child has taken its place since."""
    caught: list[str] = []

    @registry.register("work")
    async def work(ctx: Context) -> None:
        with pytest.raises(ZeroDivisionError):
            async with ctx.transaction():
                undone = await ctx.chain("part")
                raise ZeroDivisionError
        await ctx.chain("part", {"year": 2000})
        with pytest.raises(JobInvalid) as error:
            await ctx.chain("sum", depends_on=[undone])
        caught.append(str(error.value))

    await insert(connection)
    await run(database, registry)
    assert "not going to be created" in caught[0]


async def test_an_undone_child_has_no_id_after_the_commit(
    database: str, connection: Connection, registry: Registry
) -> None:
    """Neither that of the child that has taken its place, nor any."""
    handles: list[Child] = []

    @registry.register("work")
    async def work(ctx: Context) -> None:
        with pytest.raises(ZeroDivisionError):
            async with ctx.transaction():
                handles.extend([await ctx.chain("part"), await ctx.chain("part")])
                raise ZeroDivisionError
        handles.append(await ctx.chain("part", {"year": 2000}))

    job_id = await insert(connection)
    await run(database, registry)
    [created] = await children(connection, job_id)
    assert [child.id for child in handles] == [None, None, created["id"]]
    assert [child.outcome for child in handles] == [None, None, "created"]


async def test_a_child_of_another_job_can_not_be_depended_on(
    database: str, connection: Connection, registry: Registry
) -> None:
    handles: list[Child] = []

    @registry.register("work", max_attempts=1)
    async def work(ctx: Context) -> None:
        depends_on = handles[:]
        handles.append(await ctx.chain("part", {"year": 2000}))
        await ctx.chain("sum", depends_on=depends_on)

    first, second = await insert(connection), await insert(connection)
    await run(database, registry)
    states = await connection.fetch("select state, error from reactor.jobs where id = any ($1)", [first, second])
    assert sorted(one["state"] for one in states) == ["completed", "failed"]
    assert [one["error"] for one in states if one["error"] and "another job" in one["error"]]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"depends_on": ["part"]}, "can't depend on str"),
        ({"after_end_of": [Pipeline().job("part")]}, "can't depend on Node"),
        ({"depends_on": [10**9]}, "does not exist"),
        ({"inherit": "queue"}, 'Pass a list: inherit=["queue"]'),
        ({"inherit": ["colour"]}, "It can inherit scope, queue, priority, lane, tags"),
        ({"inherit": ["queue"], "queue": "slow"}, "its queue is both given and inherited"),
        ({"inherit": ["scope"], "scope": "x" * 995}, "scope"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
async def test_a_child_that_is_not_valid_fails_its_parent_and_says_why(
    database: str, connection: Connection, registry: Registry, row: Row, arguments: dict[str, Any], complaint: str
) -> None:
    @registry.register("work", max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.chain("sum", **arguments)

    job_id = await insert(connection, scope="scope=1")
    await run(database, registry)
    after = await row(job_id)
    assert (after["state"], after["children"]) == ("failed", 0)
    assert complaint in after["error"]


# What they inherit


async def test_a_child_inherits_what_it_names_and_nothing_else(
    database: str, connection: Connection, registry: Registry
) -> None:
    """D8: the module and the year of an upload, for example, and not its type of data."""

    @registry.register("work")
    async def work(ctx: Context) -> None:
        await ctx.chain("part", {"year": 1})
        await ctx.chain(
            "part",
            {"year": 2},
            inherit=["scope", "queue", "priority", "lane", "tags"],
            scope="factor=9",
            tags=["b", "c"],
        )
        await ctx.chain("part", {"year": 3}, inherit=["scope"], queue="fast")

    job_id = await insert(
        connection, scope="module=3/year=2026", queue="slow", priority=-7, lane="customer=17", tags=["a", "b"]
    )
    await run(database, registry)
    plain, everything, scope = await children(connection, job_id)
    assert (plain["scope"], plain["queue"], plain["priority"], plain["lane"], plain["tags"]) == (
        None,
        "default",
        0,
        None,
        [],
    )
    assert (everything["scope"], everything["queue"], everything["priority"]) == (
        "module=3/year=2026/factor=9",
        "slow",
        -7,
    )
    assert (everything["lane"], everything["tags"]) == ("customer=17", ["a", "b", "c"])
    assert (scope["scope"], scope["queue"], scope["state"]) == ("module=3/year=2026", "fast", "completed")


async def test_a_child_of_a_job_without_a_scope_inherits_none(
    database: str, connection: Connection, registry: Registry
) -> None:
    @registry.register("work")
    async def work(ctx: Context) -> None:
        await ctx.chain("part", inherit=["scope", "lane"])
        await ctx.chain("part", inherit=["scope"], scope="factor=9")

    job_id = await insert(connection)
    await run(database, registry)
    assert [child["scope"] for child in await children(connection, job_id)] == [None, "factor=9"]


async def test_a_child_was_submitted_by_who_submitted_its_parent(
    database: str, connection: Connection, registry: Registry
) -> None:
    """F2: whoever started the pipeline, unless the handler names someone else."""

    @registry.register("work")
    async def work(ctx: Context) -> None:
        await ctx.chain("part", {"year": 1})
        await ctx.chain("part", {"year": 2}, submitted_by="the auditor", meta={"region": "eu"})

    declared, undeclared = await insert(connection, submitted_by="alice"), await insert(connection)
    await run(database, registry)
    first, second = await children(connection, declared)
    assert [child["submitted_by"] for child in (first, second)] == ["alice", "the auditor"]
    assert json.loads(second["meta"]) == {"region": "eu"}
    assert [child["submitted_by"] for child in await children(connection, undeclared)] == [None, "the auditor"]


# Jobs that a handler submits in its transaction


async def test_jobs_that_a_handler_submits_in_its_transaction_are_its_children(
    database: str, connection: Connection, registry: Registry, row: Row
) -> None:
    """D8, D17: in whichever way, and together with those that it chains."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Partial:
        async with ctx.transaction() as own:
            pipeline = Pipeline(job.pipeline_id)
            pipeline.job("sum", depends_on=[pipeline.job("part", {"year": 2000})])
            await pipeline.submit(own)
            await submit(own, "part", {"year": 2001}, idempotency_key="k")
            assert (await submit(own, "part", {"year": 2001}, idempotency_key="k")).outcome == "existing"
            await submit_many(own, [NewJob(job_type="part", payload={"year": year}) for year in (2002, 2003)])
            await submit_many(own, [NewJob(job_type="part", payload={"year": 2004}, idempotency_key="l")])
            with pytest.raises(ZeroDivisionError):
                async with ctx.transaction():
                    await submit(own, "part", {"year": 9999})
                    raise ZeroDivisionError
        async with ctx.session() as session:
            await session.execute(text("select reactor.submit('part', '{\"year\": 2005}')"))
        await ctx.chain("part", {"year": 2006})
        await ctx.chain("part", {"year": 2007}, idempotency_key="m")
        return Partial()

    job_id = await insert(connection)
    await run(database, registry)
    after = await row(job_id)
    found = await children(connection, job_id)
    assert (after["state"], after["children"], len(found)) == ("partial", 9, 9)
    years = [json.loads(child["payload"]).get("year") for child in found]
    assert years == [2000, None, 2001, 2002, 2003, 2004, 2005, 2006, 2007]
    assert [child["pipeline_id"] == after["pipeline_id"] for child in found[:3]] == [True, True, False]


async def test_a_handler_that_only_submits_has_children(
    database: str, connection: Connection, registry: Registry, row: Row
) -> None:
    """It chains none, and completes."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction() as own:
            await submit(own, "part", pipeline_id=job.pipeline_id)

    job_id, other = await insert(connection), await insert(connection, job_type="part")
    await run(database, registry)
    assert ((await row(job_id))["children"], (await row(other))["children"]) == (1, 0)


async def test_a_producer_can_not_name_a_parent_by_a_setting(connection: Connection, database: str, row: Row) -> None:
    """By the setting that a worker's transaction has; and the count of one transaction is nothing to the next."""
    parent = await insert(connection)
    async with connect(database, name="test") as producer:
        await producer.execute(
            f"set reactor.parent = {parent}; set reactor.children = '1 7'; set role reactor_producer"
        )
        made = await submit(producer, "part")
        await submit_many(producer, [NewJob(job_type="part")])
        assert await producer.fetchval("select parent_id is null from reactor.jobs where id = $1", made.id)
    assert await children(connection, parent) == []
