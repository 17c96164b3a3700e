"""A batch writer shares commits, and no row delays the others."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest

from reactor.database.connection import Connection, connect
from reactor.database.reconnecting import ReconnectingConnection
from reactor.lifecycle.batch_writer import BatchWriter
from tests.support.logs import Events
from tests.support.until import until


class Numbers(BatchWriter[int]):
    """Marks rows of a table as written; 13 is refused by a constraint."""

    def __init__(self, connection: ReconnectingConnection) -> None:
        super().__init__(connection, lambda: None)
        self.waiting: list[int] = []
        self.batches: list[list[int]] = []
        """All batches that were sent, written or not."""
        self.reported: set[int] = set()
        self.refused: list[int] = []
        self.statement_timeout = "0"

    @property
    def has_work(self) -> bool:
        return bool(self.waiting)

    async def write(self) -> None:
        batch, self.waiting = self.waiting, []
        if batch:
            await self._commit(sorted(batch), self._send, self._report)

    async def _send(self, connection: Connection, batch: Sequence[int]) -> set[int]:
        self.batches.append(list(batch))
        async with connection.transaction():
            await connection.execute("set local lock_timeout = '50ms'")
            await connection.execute(f"set local statement_timeout = '{self.statement_timeout}'")
            rows = await connection.fetch("update numbers set state = 'on' where n = any($1) returning n", batch)
        assert self.reported.isdisjoint(batch), "reported before its commit"
        return {row["n"] for row in rows}

    async def _report(self, batch: Sequence[int], answer: set[int], maybe_done: bool) -> None:
        self.reported |= answer

    def _refuse(self, item: int, error: asyncpg.PostgresError) -> bool:
        assert isinstance(error, asyncpg.CheckViolationError)
        self.refused.append(item)
        return True

    def _put_back(self, item: int) -> None:
        self.waiting.append(item)

    def _job_id(self, item: int) -> int:
        return item


@pytest.fixture
async def writer(database: str, connection: Connection) -> AsyncIterator[Numbers]:
    await connection.execute(
        "create table numbers (n int primary key, state text, check (state is null or n <> 13));"
        "insert into numbers select n from generate_series(1, 20) n"
    )
    line = ReconnectingConnection(database, "test")
    yield Numbers(line)
    await line.close()


async def test_items_that_are_waiting_share_a_commit(writer: Numbers) -> None:
    writer.waiting = [3, 1, 2]
    await writer.write()
    assert (writer.batches, writer.reported) == ([[1, 2, 3]], {1, 2, 3})
    assert writer.is_idle


async def test_nothing_is_sent_when_no_item_is_waiting(writer: Numbers) -> None:
    await writer.write()
    assert writer.batches == []


async def test_a_batch_that_is_refused_is_written_item_by_item(writer: Numbers, connection: Connection) -> None:
    writer.waiting = [12, 13, 14]
    await writer.write()
    assert writer.batches == [[12, 13, 14], [12], [13], [14]]
    assert (writer.reported, writer.refused) == ({12, 14}, [13])
    assert await connection.fetchval("select array_agg(n order by n) from numbers where state = 'on'") == [12, 14]
    assert writer.is_idle


async def test_an_item_whose_row_is_locked_is_written_later_and_delays_no_other(writer: Numbers, database: str) -> None:
    async with connect(database, name="operator") as operator, operator.transaction():
        await operator.execute("select from numbers where n = 2 for update")
        writer.waiting = [1, 2, 3]
        await writer.write()
        assert (writer.reported, writer.refused) == ({1, 3}, [])
        assert not writer.has_work
        assert not writer.is_idle, "what is postponed is still to be written"
    await until(lambda: writer.has_work)
    await writer.write()
    assert writer.reported == {1, 2, 3}
    assert writer.is_idle


async def test_an_item_that_takes_too_long_is_written_later_and_delays_no_other(
    writer: Numbers, connection: Connection
) -> None:
    await connection.execute(
        "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(600); return new; end'; "
        "create trigger slow before update on numbers for each row when (new.n = 2) execute function slow()"
    )
    writer.statement_timeout = "1s"
    writer.waiting = [1, 2, 3]

    async def others_are_written() -> bool:
        await writer.write()
        return writer.reported == {1, 3}

    await until(others_are_written)
    assert not writer.is_idle, "what is postponed is still to be written"
    await connection.execute("drop trigger slow on numbers")
    await until(lambda: writer.has_work)
    await writer.write()
    assert (writer.reported, writer.refused) == ({1, 2, 3}, [])


async def test_a_refusal_that_is_not_about_the_data_is_repeated(
    writer: Numbers, connection: Connection, events: Events
) -> None:
    """An administrator may have revoked a privilege by mistake."""
    await connection.execute(
        "create function refuse() returns trigger language plpgsql as "
        "$$ begin raise 'permission denied' using errcode = '42501'; end $$; "
        "create trigger refuse before update on numbers for each row execute function refuse()"
    )
    writer.waiting = [1]
    await writer.write()
    await until(lambda: writer.has_work)
    await writer.write()
    assert (writer.reported, writer.refused, writer.is_idle) == (set(), [], False)
    postponed = [(e["tries"], e["error"]) for e in events if e["event"] == "write postponed"]
    assert postponed == [(1, "permission denied"), (2, "permission denied")]
    await connection.execute("drop trigger refuse on numbers")
    await until(lambda: writer.has_work)
    await writer.write()
    assert (writer.reported, writer.is_idle) == ({1}, True)


async def test_items_that_arrive_while_a_batch_is_written_form_the_next_one(writer: Numbers, database: str) -> None:
    async with connect(database, name="operator") as operator:
        lock = operator.transaction()
        await lock.start()
        await operator.execute("select from numbers where n = 1 for update")
        writer.waiting = [1]
        writing = asyncio.create_task(writer.write())
        await until(lambda: writer.batches)
        writer.waiting += [4, 5]
        await lock.rollback()
        await writing
    await until(lambda: writer.has_work)
    await writer.write()
    assert [4, 5] in [[n for n in batch if n != 1] for batch in writer.batches]
