"""ctx.session(): SQLAlchemy in the attempt's own transaction."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import ForeignKey, func, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship, selectinload

from reactor import Context, Fail, Job, JobState, Partial, Registry, Step, Summary, submit
from reactor.database.connection import Connection, connect
from reactor.testing import run_until_idle
from tests.support.jobs import Row, insert
from tests.support.until import until


class Base(DeclarativeBase):
    pass


class Run(Base):
    __tablename__ = "runs"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    options: Mapped[dict[str, Any]] = mapped_column(JSONB, default=dict)
    figures: Mapped[list["Figure"]] = relationship(back_populates="run")


class Figure(Base):
    __tablename__ = "figures"
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    value: Mapped[float]
    run: Mapped[Run] = relationship(back_populates="figures")


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture(autouse=True)
async def _tables(connection: Connection) -> None:
    await connection.execute(
        "create table runs (id int generated always as identity primary key, name text unique not null, options jsonb);"
        "create table figures (id int generated always as identity primary key,"
        " run_id int not null references runs, value float8 not null)"
    )


async def names(connection: Connection) -> list[str]:
    return [row["name"] for row in await connection.fetch("select name from runs order by name")]


async def test_data_children_steps_and_end_are_one_commit(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    """Guarantee 4: nothing is visible before the commit, everything after it."""
    before: list[list[str]] = []

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> dict[str, int]:
        async def store() -> int:
            async with ctx.session() as session:
                run = Run(name="one", options={"a": [1, "ü"]}, figures=[Figure(value=1.5), Figure(value=2.5)])
                session.add(run)
                await session.flush()
                return run.id

        run_id = await ctx.step("store", store)
        await ctx.chain("child")
        before.append(await names(connection))
        async with ctx.session() as session:
            found = await session.get(Run, run_id, options=[selectinload(Run.figures)])
            assert found
            assert found.options == {"a": [1, "ü"]}
            return {"figures": len(found.figures)}

    job_id = await insert(connection, max_attempts=1)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert before == [[]]
    assert await names(connection) == ["one"]
    assert (await row(job_id))["result"] == '{"figures": 2}'
    assert await connection.fetchval("select count(*) from reactor.jobs where parent_id = $1", job_id) == 1
    assert await connection.fetchval("select state from reactor.steps") == "completed"


async def test_a_commit_of_the_session_does_not_commit_the_transaction(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    """Guarantee 4: a handler that fails afterwards leaves nothing."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.session() as session:
            session.add(Run(name="committed"))
            await session.commit()
            assert await names(connection) == []
            session.add(Run(name="after"))
            await session.commit()
            assert await session.scalar(select(func.count()).select_from(Run)) == 2
        assert await names(connection) == []
        raise ValueError("too bad")

    job_id = await insert(connection, max_attempts=1)
    await run_until_idle(database, registry)
    assert (await row(job_id))["state"] == "failed"
    assert await names(connection) == []


async def test_a_stale_attempts_session_leaves_nothing(
    database: str, registry: Registry, connection: Connection
) -> None:
    """Guarantees 3 and 4: the fence is checked in the same transaction."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.session() as session:
            session.add(Run(name="one"))
            await session.commit()
        await connection.execute("update reactor.jobs set attempt_id = gen_random_uuid()")

    await insert(connection, max_attempts=1)
    await run_until_idle(database, registry)
    assert await names(connection) == []


async def test_an_exception_rolls_back_only_its_block(
    database: str, registry: Registry, connection: Connection
) -> None:
    """Including what the session has committed in it."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Partial:
        async with ctx.transaction() as own:
            await own.execute("insert into runs (name) values ('asyncpg')")
        async with ctx.session() as session:
            session.add(Run(name="kept"))
        with pytest.raises(ZeroDivisionError):
            async with ctx.session() as session:
                session.add(Run(name="undone"))
                await session.commit()
                raise ZeroDivisionError
        async with ctx.session() as session:
            assert await session.scalar(select(func.count()).select_from(Run)) == 2
        return Partial()

    await insert(connection, max_attempts=1)
    assert await run_until_idle(database, registry) == {JobState.PARTIAL: 1}
    assert await names(connection) == ["asyncpg", "kept"]


async def test_a_failure_can_keep_what_the_session_wrote(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    """D6"""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.session() as session:
            session.add(Run(name="kept"))
            raise Fail("2 rows are invalid", result={"rows": 1}, keep_data=True)

    job_id = await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.FAILED: 1}
    assert await names(connection) == ["kept"]
    assert (await row(job_id))["result"] == '{"rows": 1}'


async def test_a_failure_after_a_refused_row_is_final_and_says_that_nothing_was_kept(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction() as own:
            await own.execute("insert into runs (name) values ('asyncpg')")
        async with ctx.session() as session:
            session.add(Run(name=None))
            try:
                await session.flush()
            except IntegrityError:
                raise Fail("no name", keep_data=True) from None

    job_id = await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.FAILED: 1}
    assert await names(connection) == []
    assert (await row(job_id))["error"].startswith("no name\n\nIts data could not be kept: ")


async def test_a_refused_row_can_be_rolled_back(database: str, registry: Registry, connection: Connection) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.session() as session:
            session.add(Run(name="one"))
            await session.commit()
            session.add(Run(name="one"))
            with pytest.raises(IntegrityError):
                await session.flush()
            await session.rollback()
            async with session.begin_nested():
                session.add(Run(name="two"))

    await insert(connection, max_attempts=1)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert await names(connection) == ["one", "two"]


async def test_jobs_are_submitted_through_the_session(
    database: str, registry: Registry, connection: Connection
) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.session() as session:
            await submit(session, "other")
            assert await connection.fetchval("select count(*) from reactor.jobs") == 1

    await insert(connection, max_attempts=1)
    await run_until_idle(database, registry)
    assert await connection.fetchval("select count(*) from reactor.jobs") == 2


async def test_each_step_has_its_own_session(database: str, registry: Registry, connection: Connection) -> None:
    """The rows of a step that fails are rolled back."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        async def store(name: str) -> None:
            async with ctx.session() as session:
                session.add(Run(name=name))
                await session.flush()
            if name == "bad":
                raise ValueError

        return await ctx.steps([[Step(name, store, name)] for name in ("good", "bad", "fine")])

    await insert(connection, max_attempts=1)
    assert await run_until_idle(database, registry) == {JobState.PARTIAL: 1}
    assert await names(connection) == ["fine", "good"]


async def waits(connection: Connection, other: Connection) -> bool:
    pid = other.get_server_pid()
    return bool(await connection.fetchval("select wait_event_type = 'Lock' from pg_stat_activity where pid = $1", pid))


async def test_a_deadlock_in_the_session_runs_the_handler_again(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    """SQLAlchemy raises its own error, which is recognized by its cause."""
    await connection.execute("insert into runs (name) values ('a'), ('b')")
    calls: list[type[BaseException] | None] = []
    update = "update runs set options = '{}' where name = :name"

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with connect(database, name="rival") as rival, ctx.session() as session:
            if calls:
                calls.append(None)
                return
            async with rival.transaction():
                await rival.execute("set deadlock_timeout = '60s'")
                await rival.execute("update runs set options = '{}' where name = 'b'")
                await session.execute(text("set local deadlock_timeout = '10ms'"))
                await session.execute(text(update), {"name": "a"})
                crossing = asyncio.create_task(rival.execute("update runs set options = '{}' where name = 'a'"))
                # A session checks for deadlocks once, some time after its wait started: the rival must wait first.
                await until(lambda: waits(connection, rival))
                try:
                    await session.execute(text(update), {"name": "b"})
                except DBAPIError as error:
                    calls.append(type(error))
                    crossing.cancel()
                    await asyncio.wait([crossing])
                    raise

    job_id = await insert(connection, max_attempts=1)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert calls == [DBAPIError, None]
    assert (await row(job_id))["attempts"] == 1


def test_sqlalchemy_is_imported_only_when_used() -> None:
    script = "import sys, reactor, reactor.worker.claim_loop; assert 'sqlalchemy' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
