"""The table in sql/schema/functions/settle.sql, walked: how each outcome ends an attempt, with attempts left or not."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from reactor.database import statements
from reactor.database.connection import Connection, connect
from reactor.job import Job
from reactor.lifecycle.claim import claim_one
from reactor.lifecycle.lease import Worker, register_worker, retire_worker
from reactor.lifecycle.release import Release, release, release_unstarted
from reactor.lifecycle.settle import abandon, settle
from reactor.outcome import Completed, Ending, Errored, Failed, Outcome, Partial, Snoozed
from tests.support.jobs import insert

ROOT = Path(__file__).parents[2]
DELAY_SECONDS = 30
FREE_RELEASES = 10

Row = Callable[[int], Awaitable[dict[str, Any]]]
End = Callable[[Connection, Job], Awaitable[object]]


class Rule(NamedTuple):
    outcome: str
    left: str
    none_left: str
    attempts: str
    run_after: str
    worker_id: str
    error: str
    recorded_as: str


def table(path: str, start: str) -> list[Rule]:
    """The rules in the first Markdown table after `start`."""
    text = (ROOT / path).read_text()
    found = re.search(r"(?:^(?:-- )?\|.*\n)+", text[text.index(start) :], re.MULTILINE)
    assert found
    _, _, *lines = found[0].splitlines()
    return [Rule(*(cell.strip(" `") for cell in line.removeprefix("-- ").strip("|").split("|"))) for line in lines]


RULES = table("sql/schema/functions/settle.sql", "-- | outcome")


def by_settle(outcome: Outcome) -> End:
    return lambda connection, job: settle(connection, [Ending(job.id, job.attempt_id, outcome)])


def by_release(outcome: Release) -> End:
    return lambda connection, job: release(connection, {job.id: job.attempt_id}, outcome=outcome, why="given")


def by_dead_worker(statement: str, argument: Callable[[Job], int]) -> End:
    async def end(connection: Connection, job: Job) -> None:
        await connection.execute("update reactor.workers set ended_at = clock_timestamp()")
        assert await connection.fetch(statement, argument(job))

    return end


ENDS: dict[str, End] = {
    "completed": by_settle(Completed({"rows": 1}, "done")),
    "partial": by_settle(Partial({"rows": 1}, "half")),
    "failed": by_settle(Failed("given")),
    "error": by_settle(Errored("given", DELAY_SECONDS)),
    "snoozed": by_settle(Snoozed(DELAY_SECONDS, "later")),
    "unstarted": lambda connection, job: release_unstarted(connection, {job.id: job.attempt_id}),
    "released": by_release("released"),
    "crashed": by_release("crashed"),
    "culprit": by_release("culprit"),
    "abandoned": lambda connection, job: abandon(connection, job.id, job.attempt_id, Errored("given", DELAY_SECONDS)),
    "lease_lost": by_dead_worker(statements.SWEEP, lambda job: 100),
    "recovered": by_dead_worker(statements.RECOVER, lambda job: job.id),
}
# What each of them gives as the error, if not "given".
ERRORS = dict.fromkeys(("completed", "partial", "snoozed")) | dict.fromkeys(
    ("lease_lost", "recovered"), "The pod pod-1 died or sent no heartbeat during attempt {}."
)


async def running(connection: Connection, worker: Worker, number: int) -> Job:
    """A job in the attempt `number` of 2, with a scope, the error of an earlier attempt, and a running step."""
    job_id = await insert(connection, scope="s", max_attempts=2)
    for _ in range(number - 1):
        earlier = await claim_one(connection, worker, job_id)
        assert earlier
        await settle(connection, [Ending(job_id, earlier.attempt_id, Errored("earlier"))])
    job = await claim_one(connection, worker, job_id)
    assert job
    await connection.execute(
        "insert into reactor.steps (job_id, name, position, state) values ($1, 'a', 0, 'running')", job_id
    )
    await connection.execute(
        "update reactor.jobs set error = 'earlier', progress = 0.5, step_counts = reactor.count_steps(id) "
        "where id = $1",
        job_id,
    )
    return job


async def record(connection: Connection, job: Job) -> asyncpg.Record | None:
    return await connection.fetchrow(
        "select number, pod, started_at, outcome, error from reactor.attempts where job_id = $1 and attempt_id = $2",
        job.id,
        job.attempt_id,
    )


async def check(connection: Connection, rule: Rule, job: Job, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Every column of the job that an end may write, and the row in reactor.attempts."""
    number = before["attempts"]
    given = ERRORS.get(rule.outcome, "given")
    given = given.format(number) if given else None
    state = rule.left if number < before["quota"] else rule.none_left
    again = state == "pending"
    undone = rule.error == "kept"
    is_delayed = again and rule.run_after == "delay"
    has_result = rule.outcome in ("completed", "partial")
    message = {"completed": "done", "partial": "half", "snoozed": "later"}.get(rule.outcome)
    assert after.pop("changed_xid") != before["changed_xid"]
    if run_after := after.pop("run_after"):
        wait = await connection.fetchval("select extract(epoch from $1 - clock_timestamp())::float8", run_after)
        assert DELAY_SECONDS - 20 < wait <= DELAY_SECONDS
    assert (run_after is not None) == is_delayed
    assert (after.pop("finished_at") is not None) == (not again)
    ends_an_attempt = again and rule.outcome != "unstarted"
    assert (after.pop("requeued_at") != before["requeued_at"]) == ends_an_attempt
    assert after["ready_at"] is None
    assert after == {name: value for name, value in before.items() if name in after} | {
        "state": state,
        "attempts": {"charged": number, "uncharged": number - 1, "0": 0}[rule.attempts],
        "attempt_id": None if again else job.attempt_id,
        "phase": {"pending": "scheduled" if is_delayed else "ready", "completed": "taken"}.get(state, "failed"),
        "holds_scope": rule.worker_id == "kept",
        "worker_id": before["worker_id"] if rule.worker_id == "kept" else None,
        "error": "earlier" if undone else given,
        "started_at": None if rule.outcome == "unstarted" and number == 1 else before["started_at"],
        "result": '{"rows": 1}' if has_result else None,
        "status_message": message,
        "progress": 1 if rule.outcome == "completed" else 0.5,
        "step_counts": await connection.fetchval("select reactor.count_steps($1)::text", job.id),
    }
    assert after["is_current"]
    assert after["locked_by"] == "pod-1"
    recorded = await record(connection, job)
    if again and rule.recorded_as:
        error = "given" if undone else given
        assert recorded
        assert tuple(recorded) == (number, "pod-1", before["locked_at"], rule.recorded_as, error)
    else:
        assert recorded is None
    step = await connection.fetchval("select state from reactor.steps")
    assert step == ("skipped" if has_result else "pending")


def test_the_table_is_complete() -> None:
    assert [rule.outcome for rule in RULES] == list(ENDS)


def test_the_documentation_has_the_same_table() -> None:
    assert table("docs/architecture.md", "### How attempts end") == RULES


async def test_an_unknown_outcome_is_refused(connection: Connection, worker: Worker, row: Row) -> None:
    job = await running(connection, worker, 1)
    before = await row(job.id)
    arguments = [[job.id], [job.attempt_id], ["exploded"], *[None] * 6]
    with pytest.raises(asyncpg.InvalidParameterValueError, match="unknown outcome exploded"):
        await connection.fetch(statements.SETTLE, *arguments)
    assert await row(job.id) == before


@pytest.mark.parametrize("number", [1, 2], ids=["attempts left", "none left"])
@pytest.mark.parametrize("rule", RULES, ids=[rule.outcome for rule in RULES])
async def test_an_attempt_ends_by_the_table(
    connection: Connection, worker: Worker, row: Row, rule: Rule, number: int
) -> None:
    job = await running(connection, worker, number)
    before = await row(job.id)
    await ENDS[rule.outcome](connection, job)
    await check(connection, rule, job, before, await row(job.id))


@pytest.mark.parametrize("number", [1, 2], ids=["attempts left", "none left"])
@pytest.mark.parametrize("outcome", ["released", "crashed"])
async def test_after_ten_free_releases_the_job_is_charged(
    connection: Connection, worker: Worker, row: Row, outcome: str, number: int
) -> None:
    job = await running(connection, worker, number)
    await connection.execute(
        "insert into reactor.attempts (job_id, attempt_id, number, outcome) "
        "select $1, gen_random_uuid(), 1, (array['released', 'crashed'])[1 + n % 2] from generate_series(1, $2) n",
        job.id,
        FREE_RELEASES,
    )
    before = await row(job.id)
    await ENDS[outcome](connection, job)
    charged = Rule(outcome, "pending", "failed", "charged", "null", "null", "given", outcome)
    await check(connection, charged, job, before, await row(job.id))


@pytest.mark.parametrize("number", [1, 2], ids=["attempts left", "none left"])
async def test_an_abandoned_attempt_that_must_not_be_repeated_fails_the_job(
    connection: Connection, worker: Worker, row: Row, number: int
) -> None:
    job = await running(connection, worker, number)
    before = await row(job.id)
    await abandon(connection, job.id, job.attempt_id, Failed("given"))
    final = Rule("abandoned", "failed", "failed", "charged", "null", "kept", "given", "")
    await check(connection, final, job, before, await row(job.id))


@pytest.mark.parametrize(
    ("end", "is_ready"),
    [
        (by_settle(Errored("given", 0)), True),
        (by_settle(Snoozed(0)), True),
        (lambda connection, job: abandon(connection, job.id, job.attempt_id, Errored("given", 0)), False),
    ],
    ids=["error", "snoozed", "abandoned"],
)
async def test_without_a_delay_the_job_is_ready_at_once_unless_its_handler_still_runs(
    connection: Connection, worker: Worker, row: Row, end: End, is_ready: bool
) -> None:
    job = await running(connection, worker, 1)
    await end(connection, job)
    after = await row(job.id)
    assert (after["state"], after["run_after"] is None) == ("pending", is_ready)


@pytest.mark.parametrize("name", ["lease_lost", "recovered"])
async def test_only_a_dead_worker_loses_its_jobs(connection: Connection, worker: Worker, row: Row, name: str) -> None:
    job = await running(connection, worker, 1)
    before = await row(job.id)
    assert await connection.fetch(statements.SWEEP, 100) == []
    assert await connection.fetch(statements.RECOVER, job.id) == []
    assert await row(job.id) == before


async def test_jobs_that_a_dead_worker_no_longer_runs_only_lose_their_hold(
    connection: Connection, worker: Worker, row: Row
) -> None:
    """Their attempts ended before: one was cancelled, the others were abandoned."""
    cancelled, again, failed = [
        await claim_one(connection, worker, await insert(connection, scope=scope, max_attempts=2))
        for scope in ("a", "b", "c")
    ]
    assert cancelled
    assert again
    assert failed
    await connection.fetch(statements.CANCEL, [cancelled.id], "by the operator")
    await abandon(connection, again.id, again.attempt_id, Errored("given", DELAY_SECONDS))
    await abandon(connection, failed.id, failed.attempt_id, Failed("given"))
    parked = [await insert(connection, scope=scope) for scope in ("a", "b", "c")]
    await connection.execute("update reactor.jobs set parked = true where id = any ($1)", parked)
    before = [await row(job.id) for job in (cancelled, again, failed)]
    history = await connection.fetch("select * from reactor.attempts order by job_id")
    await retire_worker(connection, worker.id)
    swept = {r["id"]: r["state"] for r in await connection.fetch(statements.SWEEP, 100)}
    assert swept == {cancelled.id: "cancelled", again.id: "pending", failed.id: "failed"}
    for old in before:
        after = await row(old["id"])
        assert after.pop("changed_xid") != old.pop("changed_xid")
        assert after == old | {"worker_id": None, "holds_scope": False}
    assert await connection.fetch("select * from reactor.attempts order by job_id") == history
    assert [(await row(job_id))["parked"] for job_id in parked] == [False] * 3


# The sessions that ask for it wait here, after their statement's snapshot was taken and before it has locked a row.
SLOW_CLAIMS = """
alter table reactor.claims rename to stored_claims;
create function reactor.pause() returns boolean language plpgsql as $$
begin
    if current_setting('test.pause', true) = 'on' then
        perform pg_advisory_xact_lock(1);
    end if;
    return true;
end
$$;
create view reactor.claims as select * from reactor.stored_claims where reactor.pause();
"""
IS_PAUSED = """
select exists (select from pg_locks l join pg_database d on d.oid = l.database
    where d.datname = current_database() and l.locktype = 'advisory' and not l.granted)
"""


@pytest.mark.parametrize("name", ["lease_lost", "recovered"])
@pytest.mark.parametrize("is_cancelled", [False, True], ids=["running", "cancelled"])
async def test_a_job_that_a_live_worker_claims_meanwhile_stays_with_it(
    connection: Connection, database: str, worker: Worker, row: Row, name: str, is_cancelled: bool
) -> None:
    """A sweeper that saw the job with its dead worker locks it when a live one has claimed it, and perhaps an operator
    has cancelled it since: then its handler still runs, and holds the scope."""
    job = await running(connection, worker, 1)
    await retire_worker(connection, worker.id)
    other = Worker("pod-2", worker.job_types)
    await register_worker(connection, other, 60)
    await connection.execute(SLOW_CLAIMS)
    async with connect(database, name="slow") as slow:
        await slow.execute("set test.pause = 'on'")
        await connection.execute("select pg_advisory_lock(1)")
        statement, argument = {"lease_lost": (statements.SWEEP, 100), "recovered": (statements.RECOVER, job.id)}[name]
        swept = asyncio.create_task(slow.fetch(statement, argument))
        while not await connection.fetchval(IS_PAUSED):
            await asyncio.sleep(0.01)
        await release(connection, {job.id: job.attempt_id}, outcome="crashed", why="its process died")
        assert await claim_one(connection, other, job.id)
        if is_cancelled:
            await connection.fetch(statements.CANCEL, [job.id], "by the operator")
        before = await row(job.id)
        await connection.execute("select pg_advisory_unlock(1)")
        assert await swept == []
        assert await row(job.id) == before
