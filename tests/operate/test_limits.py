"""Operators' actions on limits: each has its own key, and an audit entry with the values before and after."""

import json
from typing import Any

import pytest

from reactor.database.connection import Connection
from reactor.errors import LimitInvalid, LimitUnknown
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker
from reactor.operate import Operator
from reactor.operate.limits import LimitKey, LimitValues, list_limits, remove_limit, set_limit
from tests.support.jobs import insert

ANNE = Operator("anne@host", "cli")
KEYS = (
    LimitKey(queue="mail"),
    LimitKey(job_type="work"),
    LimitKey(queue="mail", job_type="work"),
    LimitKey(job_type="work", lane="*"),
    LimitKey(queue="mail", job_type="work", lane="*"),
    LimitKey(job_type="work", lane="customer=17"),
)


async def values_by_key(connection: Connection) -> dict[LimitKey, int]:
    return {
        LimitKey(row["queue"], row["job_type"], row["lane"]): row["max_running"]
        for row in await list_limits(connection)
    }


async def test_each_key_is_a_limit_of_its_own(connection: Connection) -> None:
    expected = {key: 10 + n for n, key in enumerate(KEYS)}
    for key, most in expected.items():
        assert await set_limit(connection, key, LimitValues(max_running=most), ANNE) is None
    assert await values_by_key(connection) == expected
    for key in KEYS:
        assert await remove_limit(connection, key, ANNE) is False
        del expected[key]
        assert await values_by_key(connection) == expected
        with pytest.raises(LimitUnknown):
            await remove_limit(connection, key, ANNE)


async def test_a_limit_is_listed_with_the_jobs_that_it_counts(connection: Connection, worker: Worker) -> None:
    for key in KEYS:
        await set_limit(connection, key, LimitValues(max_running=100), ANNE)
    for queue, lane in (("mail", None), ("mail", "a"), ("mail", "customer=17"), ("default", "a")):
        await insert(connection, queue=queue, lane=lane)
    assert len(await claim(connection, worker, 10)) == 4
    running = {
        LimitKey(row["queue"], row["job_type"], row["lane"]): row["running"] for row in await list_limits(connection)
    }
    assert [running[key] for key in KEYS] == [3, 4, 3, 3, 2, 1]


async def test_the_audit_says_what_was_set_and_what_was_before(connection: Connection) -> None:
    key = LimitKey(job_type="work", lane="*")
    await set_limit(connection, key, LimitValues(max_running=5), ANNE)
    await set_limit(connection, key, LimitValues(rate=100, period_seconds=60, burst=7), ANNE)
    await remove_limit(connection, key, ANNE)
    notes = await connection.fetch("select who, came_from, what, target, details from reactor.audit order by id")
    assert {(note["who"], note["came_from"], note["target"]) for note in notes} == {
        ("anne@host", "cli", "type=work lane=*")
    }
    details: list[dict[str, Any]] = [json.loads(note["details"]) for note in notes]
    first = {"max_running": 5, "rate": None, "period_seconds": 1.0, "burst": None}
    second = {"max_running": None, "rate": 100, "period_seconds": 60, "burst": 7}
    was = {"max_running": 5, "rate": None, "period": "00:00:01", "burst": None}
    assert [note["what"] for note in notes] == ["limit set", "limit set", "limit remove"]
    assert details == [first | {"was": None}, second | {"was": was}, {"is_declared": False}]


async def test_a_limit_that_names_nothing_is_refused() -> None:
    with pytest.raises(LimitInvalid, match="neither a queue nor a job type"):
        LimitKey(lane="*")
