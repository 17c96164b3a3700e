"""Classification of the driver's errors: a lost database, or a bug in our code."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from reactor.database.connection import Connection, connect, open_pool
from reactor.database.failures import Failure, classify, had_no_effect, is_about_the_data, server_failure
from reactor.database.refusals import refusals_explained
from reactor.errors import ConnectionLost, DatabaseRefused, DatabaseUnreachable, SchemaUnknown


async def raised_by(operation: Callable[[], Awaitable[Any]]) -> BaseException:
    try:
        await operation()
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


Operation = Callable[[Connection], Awaitable[Any]]


async def twice_at_once(connection: Connection) -> None:
    await asyncio.gather(connection.execute("select pg_sleep(0.1)"), connection.execute("select 1"))


async def end_a_transaction_twice(connection: Connection) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await transaction.commit()
    await transaction.commit()


@pytest.mark.parametrize(
    ("operation", "failure"),
    [
        (lambda c: c.execute("select $1::int", "not a number"), Failure.BUG),
        (lambda c: c.execute("select $1::int", 2**40), Failure.BUG),
        (lambda c: c.execute("select $1::int", 1, 2), Failure.BUG),
        (twice_at_once, Failure.BUG),
        (end_a_transaction_twice, Failure.BUG),
        (lambda c: c.execute("select 1/0"), Failure.REFUSED),
        (lambda c: c.execute("selec 1"), Failure.REFUSED),
        (lambda c: c.execute("select pg_terminate_backend(pg_backend_pid())"), Failure.LOST),
    ],
)
async def test_errors_of_a_connection_are_classified_by_their_cause(
    database: str, operation: Operation, failure: Failure
) -> None:
    async with connect(database, name="victim") as connection:
        error = await raised_by(lambda: operation(connection))
    # The server may report its shutdown before it closes the connection.
    allowed = {failure, Failure.UNAVAILABLE} if failure is Failure.LOST else {failure}
    assert classify(error) in allowed, repr(error)


async def test_a_closed_connection_and_a_closed_pool_are_lost(database: str) -> None:
    async with connect(database, name="victim") as connection:
        transaction = connection.transaction()
        await transaction.start()
        connection.terminate()
        assert classify(await raised_by(lambda: connection.execute("select 1"))) is Failure.LOST
        assert classify(await raised_by(transaction.rollback)) is Failure.LOST
    pool = await open_pool(database, name="victim", size=1)
    pooled = await pool.acquire()
    transaction = pooled.transaction()
    await transaction.start()
    await pool.release(pooled)
    assert classify(await raised_by(transaction.commit)) is Failure.LOST
    pool.terminate()
    assert classify(await raised_by(lambda: pool.acquire())) is Failure.LOST


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (DatabaseUnreachable("there", "it is away", "Start it"), Failure.UNREACHABLE),
        (ConnectionLost("gone"), Failure.LOST),
        (SchemaUnknown("9999"), Failure.REFUSED),
        (TimeoutError(), Failure.LOST),
        (ConnectionResetError(), Failure.LOST),
        (asyncpg.InternalClientError("confused"), Failure.LOST),
        (asyncpg.AdminShutdownError("goodbye"), Failure.UNAVAILABLE),
        (asyncpg.TooManyConnectionsError("full"), Failure.UNAVAILABLE),
        (asyncpg.ReadOnlySQLTransactionError("standby"), Failure.UNAVAILABLE),
        (asyncpg.DeadlockDetectedError("crossed"), Failure.REPEATABLE),
        (asyncpg.SerializationError("crossed"), Failure.REPEATABLE),
        (asyncpg.UniqueViolationError("there is one"), Failure.REFUSED),
        (KeyError("name"), Failure.BUG),
        (asyncio.CancelledError(), Failure.BUG),
    ],
)
def test_errors_are_classified(error: BaseException, failure: Failure) -> None:
    assert classify(error) is failure


def test_connection_errors_of_a_handler_are_not_database_errors() -> None:
    """A handler's HTTP client raises OSError too, which must not repeat the attempt."""
    assert server_failure(ConnectionResetError()) is None
    assert server_failure(asyncpg.InterfaceError("connection is closed")) is None
    wrapped = RuntimeError("from a library")
    wrapped.__cause__ = asyncpg.DeadlockDetectedError("crossed")
    assert server_failure(wrapped) is Failure.REPEATABLE


def test_what_the_server_said_when_it_ended_the_session_counts() -> None:
    """The driver reports a lost connection, and that as its cause."""
    lost = asyncpg.ConnectionDoesNotExistError("closed in the middle of operation")
    assert server_failure(lost) is Failure.LOST
    lost.__cause__ = ConnectionResetError()
    assert server_failure(lost) is Failure.LOST
    lost.__cause__ = asyncpg.TransactionTimeoutError("terminating connection due to transaction timeout")
    assert server_failure(lost) is Failure.OUT_OF_TIME
    assert not had_no_effect(lost.__cause__)


@pytest.mark.parametrize(
    ("sqlstate", "failure", "is_about_data"),
    [
        ("08006", Failure.LOST, False),
        ("22003", Failure.REFUSED, True),
        ("23505", Failure.REFUSED, True),
        ("25006", Failure.UNAVAILABLE, False),
        ("25P03", Failure.OUT_OF_TIME, False),
        ("25P04", Failure.OUT_OF_TIME, False),
        ("40P01", Failure.REPEATABLE, False),
        ("42501", Failure.REFUSED, False),
        ("53100", Failure.UNAVAILABLE, False),
        ("53300", Failure.UNAVAILABLE, False),
        ("54000", Failure.REFUSED, True),
        ("55P03", Failure.LOCKED, False),
        ("57014", Failure.SLOW, False),
        ("57P01", Failure.UNAVAILABLE, False),
        ("57P05", Failure.UNAVAILABLE, False),
        ("58030", Failure.UNAVAILABLE, False),
        ("P0001", Failure.REFUSED, True),
        ("XX000", Failure.REFUSED, False),
    ],
)
async def test_a_handler_is_charged_for_what_the_server_refuses_and_not_for_what_it_cannot_do_now(
    connection: Connection, sqlstate: str, failure: Failure, is_about_data: bool
) -> None:
    error = await raised_by(
        lambda: connection.execute(f"do $$ begin raise exception using errcode = '{sqlstate}'; end $$")
    )
    assert classify(error) is failure
    assert server_failure(error) is (None if failure is Failure.REFUSED else failure)
    assert is_about_the_data(error) is is_about_data


async def test_a_value_that_the_driver_cannot_encode_is_refused_and_not_a_lost_connection(
    connection: Connection,
) -> None:
    with pytest.raises(DatabaseRefused, match="can't store a value"), refusals_explained():
        await connection.execute("select $1::int", 2**40)
    with pytest.raises(asyncpg.InterfaceError), refusals_explained():
        await connection.execute("select $1::int", 1, 2)
