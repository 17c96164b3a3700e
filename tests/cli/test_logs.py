"""`reactor logs`: what a job's handlers logged, at once and while it runs."""

import asyncio
import json
import signal
from contextlib import AbstractAsyncContextManager

import pytest

from reactor.database.connection import Connection
from tests.support.command import call, started
from tests.support.jobs import insert
from tests.support.lines import insert_lines


@pytest.fixture
async def job_id(connection: Connection) -> int:
    """A job with two attempts and two steps."""
    job_id = await insert(connection)
    await insert_lines(
        connection,
        job_id,
        [
            {"message": "reading", "fields": '{"file": "a b.csv", "rows": 5, "tag": "x"}'},
            {"level": "error", "step": "one", "message": "it failed", "fields": '{"exception": "Trace\\n  last"}'},
            {"attempt": 2, "level": "warning", "step": "two", "message": "slow"},
        ],
    )
    return job_id


def test_lines_are_printed_by_attempt_with_their_values(database: str, job_id: int) -> None:
    done = call("logs", str(job_id), database_url=database)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "attempt 1",
        '2026-01-02 03:04:05.678Z info     reading  tag=x  file="a b.csv"  rows=5',
        "2026-01-02 03:04:05.678Z error    [one] it failed",
        "    Trace",
        "      last",
        "attempt 2",
        "2026-01-02 03:04:05.678Z warning  [two] slow",
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--attempt", "2"], ["slow"]),
        (["--step", "one"], ["it failed"]),
        (["--level", "warning"], ["it failed", "slow"]),
        (["--level", "error", "--attempt", "2"], []),
        (["--follow"], ["reading", "it failed", "slow"]),
    ],
    ids=str,
)
async def test_filters_choose_lines(
    database: str, connection: Connection, job_id: int, options: list[str], expected: list[str]
) -> None:
    await connection.execute("update reactor.jobs set state = 'failed', finished_at = now() where id = $1", job_id)
    async with logs(database, str(job_id), "--json", *options) as process:
        assert process.stdout
        printed = (await process.stdout.read()).decode().splitlines()
        assert await process.wait() == 0
    assert [json.loads(line)["message"] for line in printed] == expected


def test_json_lines_have_all_columns(database: str, job_id: int) -> None:
    first = json.loads(call("logs", str(job_id), "--json", database_url=database).stdout.splitlines()[0])
    assert first == {
        "id": 1,
        "at": "2026-01-02T03:04:05.678000+00:00",
        "attempt": 1,
        "attempt_id": "00000000-0000-4000-8000-000000000001",
        "number": 1,
        "level": "info",
        "step": None,
        "message": "reading",
        "fields": {"file": "a b.csv", "rows": 5, "tag": "x"},
    }


async def test_control_characters_do_not_reach_the_terminal(database: str, connection: Connection) -> None:
    job_id = await insert(connection)
    evil = "a\x1b[2J\r\x07\u202e\nattempt 7"
    await insert_lines(
        connection,
        job_id,
        [{"message": evil, "step": evil, "fields": json.dumps({evil: evil, "exception": evil, "deep": [evil]})}],
    )
    printed = call("logs", str(job_id), database_url=database).stdout
    assert not set(printed) & {"\x1b", "\r", "\x07", "\u202e"}
    assert "attempt 7" not in printed.splitlines()
    printed = call("logs", str(job_id), "--json", database_url=database).stdout
    assert len(printed.splitlines()) == 1
    assert "\x1b" not in printed


def test_a_job_that_does_not_exist_is_an_error(database: str) -> None:
    done = call("logs", "17", database_url=database)
    assert done.returncode == 1
    assert "17" in done.stderr


async def test_a_job_without_lines_says_so(database: str, connection: Connection) -> None:
    job_id = await insert(connection)
    done = call("logs", str(job_id), database_url=database)
    assert (done.returncode, done.stdout) == (0, "")
    assert "No such lines" in done.stderr


async def test_all_pages_are_printed(database: str, connection: Connection) -> None:
    job_id = await insert(connection)
    await connection.execute(
        "insert into reactor.logs (job_id, at, attempt_id, attempt, number, level, message) "
        "select $1, now(), gen_random_uuid(), 1, n, 'info', n::text from generate_series(1, 2500) n",
        job_id,
    )
    done = call("logs", str(job_id), "--json", database_url=database)
    assert [json.loads(line)["message"] for line in done.stdout.splitlines()] == [str(n) for n in range(1, 2501)]


def logs(database: str, *arguments: str) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    return started(database, "logs", *arguments)


async def test_follow_prints_new_lines_across_attempts_until_the_job_has_ended(
    database: str, connection: Connection, job_id: int
) -> None:
    """J17"""
    async with logs(database, str(job_id), "--follow") as process:
        assert process.stdout
        for _ in range(7):
            await process.stdout.readline()
        await insert_lines(connection, job_id, [{"attempt": 3, "message": "again"}])
        assert await process.stdout.readline() == b"attempt 3\n"
        assert (await process.stdout.readline()).endswith(b" again\n")
        async with connection.transaction():
            await insert_lines(connection, job_id, [{"attempt": 3, "message": "last"}])
            await connection.execute(
                "update reactor.jobs set state = 'completed', finished_at = now() where id = $1", job_id
            )
        assert (await process.stdout.read()).endswith(b" last\n")
        assert await process.wait() == 0


async def test_follow_survives_a_lost_connection(database: str, connection: Connection, job_id: int) -> None:
    async with logs(database, str(job_id), "--follow", "--json") as process:
        assert process.stdout
        for _ in range(3):
            await process.stdout.readline()
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and application_name like 'reactor logs%'"
        )
        await insert_lines(connection, job_id, [{"message": "after"}])
        assert json.loads(await process.stdout.readline())["message"] == "after"


async def test_ctrl_c_ends_following_without_a_traceback(database: str, job_id: int) -> None:
    async with logs(database, str(job_id), "--follow") as process:
        assert process.stdout
        assert process.stderr
        await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        assert b"Traceback" not in await process.stderr.read()
