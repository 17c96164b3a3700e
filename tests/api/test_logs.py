"""GET /v1/jobs/{id}/logs: pages in both directions, filters, and what a page says of the rest."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

from reactor.database import statements
from reactor.database.connection import Connection
from tests.support.jobs import insert
from tests.support.lines import insert_lines


async def get(api: httpx.AsyncClient, path: str, status: int = 200) -> Any:
    response = await api.get(path)
    assert response.status_code == status, response.text
    return response.json()


def messages(page: Any) -> list[str]:
    return [line["message"] for line in page["lines"]]


@pytest.fixture
async def job_id(connection: Connection) -> int:
    """A job with ten lines, and another one with one between them."""
    job_id, other = await insert(connection), await insert(connection)
    await insert_lines(connection, job_id, [{"message": str(number)} for number in range(1, 6)])
    await insert_lines(connection, other, [{"message": "of another job"}])
    await insert_lines(connection, job_id, [{"message": str(number)} for number in range(6, 11)])
    return job_id


async def test_the_last_lines_come_first_and_older_ones_follow_by_page(api: httpx.AsyncClient, job_id: int) -> None:
    """J17"""
    page = await get(api, f"/v1/jobs/{job_id}/logs?limit=4")
    assert messages(page) == ["7", "8", "9", "10"]
    assert (page["job_state"], page["next"]) == ("pending", None)
    page = await get(api, page["previous"])
    assert messages(page) == ["3", "4", "5", "6"]
    assert messages(await get(api, page["next"])) == [], "up to where the page before began"
    page = await get(api, page["previous"])
    assert (messages(page), page["previous"]) == (["1", "2"], None)


async def test_pages_from_the_beginning_reach_the_end(api: httpx.AsyncClient, job_id: int) -> None:
    page = await get(api, f"/v1/jobs/{job_id}/logs?after=0&limit=4")
    found = messages(page)
    while page["next"]:
        page = await get(api, page["next"])
        found += messages(page)
    assert found == [str(number) for number in range(1, 11)]
    assert messages(await get(api, f"/v1/jobs/{job_id}/logs?after={page['after']}")) == []


async def test_a_reader_that_continues_gets_each_line_once(
    api: httpx.AsyncClient, connection: Connection, job_id: int
) -> None:
    page = await get(api, f"/v1/jobs/{job_id}/logs?limit=3")
    await insert_lines(connection, job_id, [{"message": "11"}, {"message": "12"}])
    page = await get(api, f"/v1/jobs/{job_id}/logs?after={page['after']}")
    assert messages(page) == ["11", "12"]


async def test_a_filter_that_matches_nothing_reads_no_line_twice(
    api: httpx.AsyncClient, connection: Connection, job_id: int
) -> None:
    page = await get(api, f"/v1/jobs/{job_id}/logs?level=error&after=0")
    assert messages(page) == []
    newest = await connection.fetchval("select max(id) from reactor.logs where job_id = $1", job_id)
    assert page["after"] == newest


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("attempt=2", ["b", "c"]),
        ("step=one", ["b"]),
        ("level=info", ["b", "c", "d"]),
        ("level=error", ["c"]),
        ("level=warning&attempt=3", ["d"]),
    ],
)
async def test_lines_are_filtered(
    api: httpx.AsyncClient, connection: Connection, query: str, expected: list[str]
) -> None:
    job_id = await insert(connection)
    await insert_lines(
        connection,
        job_id,
        [
            {"message": "a", "level": "debug"},
            {"message": "b", "attempt": 2, "step": "one"},
            {"message": "c", "attempt": 2, "level": "error", "step": "two"},
            {"message": "d", "attempt": 3, "level": "warning"},
        ],
    )
    for direction in ("", "&after=0"):
        assert messages(await get(api, f"/v1/jobs/{job_id}/logs?{query}{direction}")) == expected


async def test_a_line_has_all_its_values(api: httpx.AsyncClient, connection: Connection) -> None:
    job_id = await insert(connection)
    await insert_lines(connection, job_id, [{"step": "s", "fields": '{"big": 12345678901234567890123}'}])
    response = await api.get(f"/v1/jobs/{job_id}/logs")
    assert "12345678901234567890123" in response.text
    assert response.headers["cache-control"] == "no-store"
    [line] = response.json()["lines"]
    assert line.keys() == {"id", "at", "attempt", "attempt_id", "number", "level", "step", "message", "fields"}
    assert (line["step"], line["at"]) == ("s", "2026-01-02T03:04:05.678000Z")


async def test_the_lines_of_an_unknown_job_are_not_found(api: httpx.AsyncClient) -> None:
    await get(api, "/v1/jobs/17/logs", 404)


@pytest.mark.parametrize("query", ["level=loud", "limit=0", "limit=1001", "after=-1", "attempt=x", "until=7"])
async def test_an_invalid_query_names_its_field(api: httpx.AsyncClient, job_id: int, query: str) -> None:
    problem = await get(api, f"/v1/jobs/{job_id}/logs?{query}", 422)
    assert problem["errors"][0]["field"] == query.partition("=")[0]


@pytest.mark.parametrize("is_backwards", [False, True])
async def test_a_page_reads_only_its_lines(connection: Connection, is_backwards: bool) -> None:
    """However many lines there are, of this job and of others."""
    job_id = await insert(connection)
    await connection.execute(
        "insert into reactor.logs (job_id, at, attempt_id, attempt, number, level, message) "
        "select case when n % 2 = 0 then $1 else n end, now(), $2, 1, n, 'info', 'x' from generate_series(1, 40000) n",
        job_id,
        uuid4(),
    )
    await connection.execute("analyze reactor.logs")
    read = "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relid = 'reactor.logs'::regclass"
    async with connection.transaction():
        before = await connection.fetchval(read)
        arguments = (job_id, 0, 2**63 - 1, 201, None, None, None, is_backwards)
        assert len(await connection.fetch(statements.LIST_LOGS, *arguments)) == 201
        assert await connection.fetchval(read) - before < 250
