"""A connection that is opened again when the server closed it."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from structlog.testing import capture_logs

from reactor.database import reconnecting
from reactor.database.connection import Connection, connect
from reactor.database.reconnecting import ReconnectingConnection, RoundTrip
from reactor.database.retry import Backoff, RetryPolicy
from reactor.errors import StatementTimeout
from reactor.log import get_logger
from tests.support.link import link_for
from tests.support.logs import Events
from tests.support.until import until


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Any:
    # A new logger: one that another test used keeps its configuration.
    monkeypatch.setattr(reconnecting, "log", get_logger(reconnecting.__name__))
    with capture_logs() as events:
        yield events


@pytest.mark.parametrize("passes", range(4))
async def test_a_connection_closed_between_two_statements_is_reopened(
    database: str, connection: Connection, passes: int
) -> None:
    """A restart, or pg_terminate_backend: its message may be unread, half read or read at the next statement."""
    victim = ReconnectingConnection(database, "victim")
    for _ in range(5):
        pid, _ = await victim.retry(lambda c: c.fetchval("select pg_backend_pid()"))
        await connection.execute(f"select pg_terminate_backend({pid})")
        for _ in range(passes):
            await asyncio.sleep(0)
        answer, maybe_done = await victim.retry(lambda c: c.fetchval("select 1"))
        assert answer == 1
        assert isinstance(maybe_done, bool)
    await victim.close()


async def test_a_lost_connection_is_retried_and_may_have_done_its_work(
    database: str, logged: list[dict[str, Any]]
) -> None:
    victim, tries = ReconnectingConnection(database, "victim"), 0

    async def end_the_session_once(connection: Connection) -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            await connection.execute("select pg_terminate_backend(pg_backend_pid())")
        answer: int = await connection.fetchval("select 7")
        return answer

    assert await victim.retry(end_the_session_once) == (7, True)
    assert tries == 2
    assert [event["event"] for event in logged] == ["database lost", "database back"]
    await victim.close()


@pytest.mark.parametrize("arguments", [("not a number",), (2**40,), (1, 2)])
async def test_a_wrong_argument_raises_at_once_and_is_logged_as_our_bug(
    database: str, logged: list[dict[str, Any]], arguments: tuple[Any, ...]
) -> None:
    victim, tries = ReconnectingConnection(database, "victim"), 0

    async def wrong(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        await connection.execute("select $1::int", *arguments)

    with pytest.raises((asyncpg.InterfaceError, asyncpg.DataError)):
        async with asyncio.timeout(20):
            await victim.retry(wrong)
    assert tries == 1
    assert [(event["event"], event["log_level"]) for event in logged] == [
        ("internal error in a database operation", "error")
    ]
    assert await victim.retry(lambda c: c.fetchval("select 1")) == (1, False), "it can still be used"
    await victim.close()


async def test_a_refused_statement_raises_at_once(database: str, logged: list[dict[str, Any]]) -> None:
    victim = ReconnectingConnection(database, "victim")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await victim.retry(lambda c: c.execute("select 1/0"))
    assert logged == []
    await victim.close()


async def test_an_outage_is_logged_once_however_many_tasks_wait(
    server: str, database: str, logged: list[dict[str, Any]]
) -> None:
    async with connect(server, name="operator") as operator:
        shared = ReconnectingConnection(database, "shared")
        name = urlsplit(database).path.lstrip("/")
        await operator.execute(f"alter database {name} with allow_connections false")
        waiting = [asyncio.create_task(shared.retry(lambda c: c.fetchval("select 7"))) for _ in range(3)]
        await asyncio.wait(waiting, timeout=0.5)
        assert [event["event"] for event in logged] == ["database lost"]
        await operator.execute(f"alter database {name} with allow_connections true")
        assert await asyncio.gather(*waiting) == [(7, False)] * 3, "nothing was sent while it was away"
        assert [event["event"] for event in logged] == ["database lost", "database back"]
        await shared.close()


async def test_tasks_that_share_a_connection_take_turns(database: str) -> None:
    shared = ReconnectingConnection(database, "shared")

    async def slow(connection: Connection) -> int:
        answer: int = await connection.fetchval("select 7 from pg_sleep(0.01)")
        return answer

    assert await asyncio.gather(*(shared.retry(slow) for _ in range(5))) == [(7, False)] * 5
    await shared.close()


def test_pauses_double_up_to_the_longest_and_start_again_after_a_success() -> None:
    backoff = Backoff(RetryPolicy(first_seconds=0.1, longest_seconds=0.5))
    for expected in (0.1, 0.2, 0.4, 0.5, 0.5):
        assert expected / 2 <= backoff.next_seconds() <= expected * 1.5
    backoff.reset()
    assert backoff.next_seconds() <= 0.15


async def test_a_statement_that_is_given_up_is_cancelled_on_the_server(database: str, connection: Connection) -> None:
    """Otherwise it would keep its locks for as long as it takes."""
    await connection.execute("create table locked (n int); insert into locked values (1)")
    victim = ReconnectingConnection(database, "victim", statement_seconds=2)
    with pytest.raises(StatementTimeout):
        await victim.once(lambda c: c.execute("update locked set n = (select 2 from pg_sleep(600))"))
    await until(
        lambda: connection.fetchval(
            "select not exists (select from pg_stat_activity "
            "where datname = current_database() and application_name = 'victim')"
        )
    )
    await connection.execute("select from locked for update nowait")


async def test_each_repetition_of_a_statement_is_logged(database: str, events: Events) -> None:
    victim, tries = ReconnectingConnection(database, "victim"), 0

    async def cancelled_twice(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            await connection.execute("do $$ begin raise 'too long' using errcode = '57014'; end $$")

    _, maybe_done = await victim.retry(cancelled_twice)
    await victim.close()
    assert not maybe_done
    repeated = [(e["tries"], e["error"]) for e in events if e["event"] == "statement repeated"]
    assert repeated == [(1, "too long"), (2, "too long")]


async def test_the_shortest_operations_show_how_far_the_server_is(database: str) -> None:
    async with link_for(database) as (link, url):
        connection = ReconnectingConnection(url, "victim")
        assert connection.round_trip_seconds == 0
        await connection.open()
        assert 0 < connection.round_trip_seconds < 0.05
        await connection.retry(lambda c: c.execute("select pg_sleep(0.1)"))
        assert 0 < connection.round_trip_seconds < 0.05
        await connection.close()
        link.latency_seconds = 0.05
        connection = ReconnectingConnection(url, "victim")
        await connection.open()
        assert connection.round_trip_seconds >= 0.1
        await connection.close()


def test_a_round_trip_is_forgotten_after_a_while() -> None:
    """The server may be another one, after a failover."""
    round_trip = RoundTrip()
    for now, seconds, shortest in [(0, 0.01, 0.01), (50, 0.2, 0.01), (70, 0.2, 0.01), (140, 0.3, 0.2), (210, 0.3, 0.3)]:
        round_trip.add(now, now + seconds)
        assert round_trip.seconds == pytest.approx(shortest)
    round_trip.add(211, 211)  # which sent nothing
    assert round_trip.seconds == pytest.approx(0.3)
