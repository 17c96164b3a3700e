"""The judgement of `make chaos` finds what it is there to find."""

from pathlib import Path
from uuid import uuid4

import pytest

from reactor.database.connection import Connection
from tests.chaos.judgement import judge, read_trace
from tests.chaos.workload import LEDGER


async def completed(connection: Connection, job_type: str = "plain", attempts: int = 1) -> int:
    """A job as it is after its end, without a pod."""
    job_id: int = await connection.fetchval("insert into reactor.jobs (job_type) values ($1) returning id", job_type)
    await connection.execute(
        "update reactor.jobs set state = 'completed', attempts = $2, finished_at = now(), started_at = now() "
        "where id = $1",
        job_id,
        attempts,
    )
    return job_id


@pytest.fixture
async def ledger(connection: Connection) -> None:
    await connection.execute(LEDGER)


def line(word: str, job_id: int, attempt: str, at: float, scope: str = "-", pid: int = 1) -> str:
    return f"{word} {job_id} {attempt} {pid} {at} {scope}\n"


@pytest.mark.usefixtures("ledger")
async def test_the_judgement_finds_nothing_where_everything_is_right(connection: Connection, tmp_path: Path) -> None:
    job_id = await completed(connection, "ledger", attempts=2)
    await connection.execute("insert into ledger values ($1)", job_id)
    trace = tmp_path / "trace"
    trace.write_text(
        line("start", job_id, "a", 1, pid=2) + line("start", job_id, "b", 2) + line("stop", job_id, "b", 3)
    )
    assert await judge(connection, read_trace(trace), alive=[1]) == []


@pytest.mark.usefixtures("ledger")
async def test_the_judgement_finds_a_lost_job(connection: Connection) -> None:
    job_id: int = await connection.fetchval("insert into reactor.jobs (job_type) values ('plain') returning id")
    missing = uuid4()
    found = await judge(connection, [], [missing])
    assert found == [
        f"lost: pipeline {missing} was acknowledged and does not exist",
        f"lost: job {job_id} (plain) is pending: None",
    ]


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("times", [0, 2])
async def test_the_judgement_finds_a_job_whose_data_is_doubled_or_missing(connection: Connection, times: int) -> None:
    job_id = await completed(connection, "ledger")
    for _ in range(times):
        await connection.execute("insert into ledger values ($1)", job_id)
    assert await judge(connection, []) == [f"doubled: job {job_id} has {times} rows in the ledger"]


@pytest.mark.usefixtures("ledger")
async def test_the_judgement_finds_data_of_a_job_that_did_not_complete(connection: Connection) -> None:
    await connection.execute("insert into ledger values (17)")
    assert await judge(connection, []) == ["doubled: job 17 has 1 rows in the ledger"]


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("is_one_job", [True, False])
async def test_the_judgement_finds_what_ran_at_the_same_time(
    connection: Connection, tmp_path: Path, is_one_job: bool
) -> None:
    """Two attempts of one job, or two jobs of one scope: the first is seen after the second has started."""
    first = await completed(connection)
    second = first if is_one_job else await completed(connection)
    scope = "-" if is_one_job else "s"
    trace = tmp_path / "trace"
    trace.write_text(
        line("start", first, "a", 1, scope) + line("start", second, "b", 2, scope) + line("tick", first, "a", 3, scope)
    )
    assert [find.partition(":")[0] for find in await judge(connection, read_trace(trace))] == ["at once"]


@pytest.mark.usefixtures("ledger")
async def test_the_judgement_finds_a_charge_although_the_process_lives(connection: Connection, tmp_path: Path) -> None:
    job_id = await completed(connection, attempts=2)
    first, second = str(uuid4()), str(uuid4())
    trace = tmp_path / "trace"
    trace.write_text(
        line("start", job_id, first, 1)
        + line("stop", job_id, first, 2)
        + line("start", job_id, second, 3)
        + line("stop", job_id, second, 4)
    )
    [found] = await judge(connection, read_trace(trace), alive=[1])
    assert found.startswith(f"charged: job {job_id} (plain) has 2 attempts, 0 of them in processes that died")


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("has_started", [False, True])
async def test_a_claim_that_a_dead_process_had_not_started_may_be_charged_once(
    connection: Connection, tmp_path: Path, has_started: bool
) -> None:
    job_id = await completed(connection, attempts=2)
    lost = uuid4()
    await connection.execute(
        "insert into reactor.attempts (job_id, attempt_id, number, pod, outcome) values ($1, $2, 1, 'pod-1', $3)",
        job_id,
        lost,
        "lease_lost",
    )
    trace = tmp_path / "trace"
    trace.write_text(line("start", job_id, str(lost), 1) if has_started else "")
    found = [len(await judge(connection, read_trace(trace), alive=[1], bereft=pods)) for pods in (["pod-1"], ["pod-2"])]
    assert found == [has_started, 1]


@pytest.mark.usefixtures("ledger")
async def test_the_judgement_finds_a_job_that_started_before_its_time(connection: Connection) -> None:
    job_id = await completed(connection)
    await connection.execute("update reactor.jobs set payload = '{\"delay\": 1}' where id = $1", job_id)
    [found] = await judge(connection, [])
    assert found.startswith(f"early: job {job_id} started ")
