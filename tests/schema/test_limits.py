"""Limits, rates and turns: exact over all pods, and nothing waits that may run."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

import asyncpg
import pytest

from reactor import Retry
from reactor.database import statements
from reactor.database.connection import Connection, connect
from reactor.handlers.registry import Registry
from reactor.job import Job
from reactor.lifecycle.claim import Again, claim, claim_job, claim_once
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import abandon, settle
from reactor.outcome import Completed, Ending, Errored, Snoozed
from reactor.worker.claim_loop import ClaimLoop
from tests.support.claim_loops import register
from tests.support.jobs import insert
from tests.support.until import until

_EACH_LIMIT = """
select l.queue, l.job_type, l.lane, count(*)
from reactor.jobs j cross join lateral reactor.limits_of(j.queue, j.job_type, j.lane) l
where j.worker_id is not null and l.max_running is not null
group by 1, 2, 3
"""
_GROW_OLD = "update reactor.limits set seen_at = seen_at - interval '20 seconds'"


async def limit(connection: Connection, **columns: object) -> None:
    names, places = ", ".join(columns), ", ".join(f"${n}" for n in range(1, len(columns) + 1))
    await connection.execute(f"insert into reactor.limits ({names}) values ({places})", *columns.values())


async def insert_many(connection: Connection, count: int, *, lane: str | None = None, queue: str = "default") -> None:
    await connection.execute(
        "insert into reactor.jobs (job_type, lane, queue) select 'work', $2, $3 from generate_series(1, $1::int)",
        count,
        lane,
        queue,
    )


async def finish(connection: Connection, jobs: list[Job]) -> None:
    assert len(await settle(connection, [Ending(job.id, job.attempt_id, Completed()) for job in jobs])) == len(jobs)


async def lanes_of(connection: Connection, jobs: list[Job]) -> list[str]:
    rows = await connection.fetch(
        "select j.lane from unnest($1::bigint[]) with ordinality i (id, n) join reactor.jobs j using (id) order by i.n",
        [job.id for job in jobs],
    )
    return [row["lane"] for row in rows]


@pytest.mark.parametrize(
    ("columns", "first", "second"),
    [
        ({"job_type": "work"}, 3, 3),
        ({"queue": "default"}, 3, 3),
        ({"queue": "default", "job_type": "work"}, 3, 3),
        ({"job_type": "work", "lane": "*"}, 6, 6),
        ({"queue": "default", "lane": "*"}, 6, 6),
        ({"queue": "default", "job_type": "work", "lane": "*"}, 6, 6),
        ({"job_type": "work", "lane": "b"}, 13, 3),
        ({"job_type": "other"}, 20, 0),
        ({"queue": "other"}, 20, 0),
    ],
)
async def test_a_limit_counts_what_it_names(
    connection: Connection, worker: Worker, columns: dict[str, object], first: int, second: int
) -> None:
    await limit(connection, max_running=3, **columns)
    for lane in ("a", "b"):
        await insert_many(connection, 10, lane=lane)
    jobs = await claim(connection, worker, 20)
    assert len(jobs) == first
    assert await claim(connection, worker, 20) == []
    await finish(connection, jobs)
    assert len(await claim(connection, worker, 20)) == second


async def test_a_lane_may_have_a_limit_of_its_own(connection: Connection, worker: Worker) -> None:
    await limit(connection, job_type="work", lane="*", max_running=1)
    await limit(connection, job_type="work", lane="large", max_running=4)
    await limit(connection, job_type="work", lane="free")
    for lane in ("small", "large", "free"):
        await insert_many(connection, 6, lane=lane)
    jobs = await claim(connection, worker, 20)
    assert Counter(await lanes_of(connection, jobs)) == {"small": 1, "large": 4, "free": 6}


@pytest.mark.parametrize(("lane", "rate"), [("", None), ("*", None), ("", 1), ("*", 1)])
async def test_a_limit_holds_over_queues_while_another_claim_is_under_way(
    connection: Connection, connections: list[Connection], worker: Worker, lane: str, rate: int | None
) -> None:
    """What the other claim has taken is not visible yet: only the lock of the limit, which queues share, says so."""
    await connection.execute(
        "insert into reactor.limits (job_type, lane, rate, period, max_running) "
        "values ('work', $1, $2::int, '1 hour', case when $2::int is null then 1 end)",
        lane,
        rate,
    )
    for queue in ("a", "b"):
        await insert_many(connection, 1, lane="l", queue=queue)
    claims = "select id, job_type from reactor.claim($1, 5, array[$2::text], array['work'], array[3])"
    other = connections[0]
    async with other.transaction():
        assert (await other.fetch(claims, worker.id, "a"))[0]["id"] is not None
        (left,) = await connection.fetch(claims, worker.id, "b")
        assert (left["id"], left["job_type"]) == (None, "later")
    assert [row["id"] for row in await connection.fetch(claims, worker.id, "b")] == [None]


async def test_a_claim_of_one_job_waits_for_no_other_claim_of_its_limit(
    connection: Connection, connections: list[Connection], worker: Worker
) -> None:
    await limit(connection, job_type="work", max_running=1)
    await insert_many(connection, 1, queue="a")
    job_id = await insert(connection, queue="b")
    other = connections[0]
    async with other.transaction():
        await other.fetch("select id from reactor.claim($1, 5, array['a'], array['work'], array[3])", worker.id)
        assert not await claim_job(connection, worker, job_id)
    assert not await claim_job(connection, worker, job_id)


async def test_a_claim_that_limits_hold_back_waits_for_an_end_and_not_for_a_time(
    connection: Connection, worker: Worker
) -> None:
    await limit(connection, job_type="work", max_running=1)
    await insert_many(connection, 3)
    for expected in (1, 0):
        jobs, again, opens_in = await claim_once(connection, worker, 5)
        assert (len(jobs), again, opens_in) == (expected, Again.LIMITED, None)
    await connection.execute("delete from reactor.limits; insert into reactor.limits (queue, rate) values ('other', 5)")
    assert len((await claim_once(connection, worker, 5)).jobs) == 2
    assert await claim_once(connection, worker, 5) == ([], None, None), "a limit of another queue"


async def test_a_claim_that_leaves_a_free_place_wakes_other_pods(
    connection: Connection, connections: list[Connection], worker: Worker
) -> None:
    """It had no slot for the next job, and another pod may have one."""
    heard: list[str] = []
    pod = connections[0]
    await pod.add_listener("reactor_places", lambda *notification: heard.append(notification[2]))
    for columns, lane in (({"lane": "*"}, "l"), ({"lane": ""}, None)):
        await connection.execute("delete from reactor.limits")
        await limit(connection, job_type="work", max_running=2, **columns)
        await insert_many(connection, 3, lane=lane)
        for left in (True, False):
            heard.clear()
            await connection.execute("select setval('reactor.places_notified_at', 0)")
            assert len((await claim_once(connection, worker, 1)).jobs) == 1
            await pod.fetchval("select 1")  # notifications come before its answer
            assert bool(heard) is left
        await connection.execute(
            "update reactor.jobs set state = 'cancelled', worker_id = null, finished_at = now() "
            "where finished_at is null"
        )
    await pod.reset()


async def test_ends_of_limited_jobs_wake_other_pods(
    connection: Connection, connections: list[Connection], worker: Worker
) -> None:
    """The worker that ends a job claims next: other pods are notified apart from new jobs. A dead one does not."""
    await limit(connection, job_type="work", max_running=2)
    await insert_many(connection, 4)
    jobs = await claim(connection, worker, 4)
    heard: list[str] = []
    pod = connections[0]
    for channel in ("reactor_places", "reactor_jobs"):
        await pod.add_listener(channel, lambda *notification: heard.append(notification[2]))
    forget = "select setval('reactor.places_notified_at', 0), setval('reactor.jobs_notified_at', 0)"
    await connection.execute(forget)
    await finish(connection, jobs[:1])
    await pod.fetchval("select 1")
    assert heard == ["reactor_places"]
    heard.clear()
    await connection.execute("update reactor.workers set lease_until = now() - interval '1 hour'")
    await connection.execute("select reactor.expire_workers()")
    await connection.execute(forget)
    await connection.execute("select reactor.sweep(1000)")
    await pod.fetchval("select 1")
    assert heard == ["reactor_jobs"]
    await pod.reset()


@pytest.mark.parametrize("plain", [1, 3, 30])
@pytest.mark.parametrize("columns", [{"max_running": 1}, {"rate": 1}])
async def test_a_full_queue_is_left_out_and_plain_ones_are_claimed(
    connection: Connection, worker: Worker, columns: dict[str, int], plain: int
) -> None:
    """However many plain queues there are: with one of them, the claim is as short as without the full queue."""
    await limit(connection, queue="narrow", **columns)
    await connection.execute("update reactor.limits set period = '1 hour'")
    await insert_many(connection, 5, queue="narrow")
    for n in range(plain):
        await insert_many(connection, 2, queue=f"plain {n}")
    jobs = await claim(connection, worker, 100)
    assert Counter(job.queue == "narrow" for job in jobs) == {True: 1, False: 2 * plain}
    for _ in range(3):
        await insert_many(connection, 1, queue="plain 0")
        assert [job.queue for job in await claim(connection, worker, 100)] == ["plain 0"]
    await connection.execute("insert into reactor.queues (name, paused) values ('plain 0', true)")
    await insert_many(connection, 1, queue="plain 0")
    assert await claim(connection, worker, 100) == []


@pytest.mark.parametrize("full", [9, 10, 11, 30])
async def test_a_plain_queue_is_found_behind_many_full_ones(connection: Connection, worker: Worker, full: int) -> None:
    for n in range(full):
        await limit(connection, queue=f"full {n}", max_running=0)
        await insert_many(connection, 2, queue=f"full {n}")
    for queues in (["z"], ["y", "z"]):
        for queue in queues:
            await insert_many(connection, 1, queue=queue)
        assert sorted(job.queue for job in await claim(connection, worker, 5)) == queues


@pytest.mark.parametrize("columns", [{"max_running": 1}, {"rate": 1}])
async def test_the_only_queue_that_is_not_full_has_its_limit_too(
    connection: Connection, worker: Worker, columns: dict[str, int]
) -> None:
    await limit(connection, queue="shut", max_running=0)
    await limit(connection, queue="narrow", **columns)
    await connection.execute("update reactor.limits set period = '1 hour'")
    for queue in ("shut", "narrow"):
        await insert_many(connection, 5, queue=queue)
    assert [job.queue for job in await claim(connection, worker, 100)] == ["narrow"]
    assert await claim(connection, worker, 100) == []


async def test_the_end_of_a_job_makes_room_for_the_next_of_its_lane(connection: Connection, worker: Worker) -> None:
    await limit(connection, job_type="work", lane="*", max_running=1)
    for lane in ("a", "b"):
        await insert_many(connection, 5, lane=lane)
    jobs = await claim(connection, worker, 10)
    assert sorted(await lanes_of(connection, jobs)) == ["a", "b"]
    for _ in range(4):
        assert await claim(connection, worker, 10) == []
        lane = (await lanes_of(connection, jobs[:1]))[0]
        await finish(connection, jobs[:1])
        jobs = [*jobs[1:], *await claim(connection, worker, 10)]
        assert (await lanes_of(connection, jobs))[-1] == lane
        assert len(jobs) == 2


async def test_max_running_of_a_queue_is_the_limit_of_the_whole_queue(connection: Connection) -> None:
    limits = "select max_running, rate from reactor.limits where queue = 'slow' and job_type = '' and lane = ''"
    queue = "select max_running from reactor.queues where name = 'slow'"
    await connection.execute("insert into reactor.queues (name, max_running) values ('slow', 2)")
    assert await connection.fetchval(limits) == 2
    await connection.execute("update reactor.limits set max_running = 5, rate = 7 where queue = 'slow'")
    assert await connection.fetchval(queue) == 5
    await connection.execute("update reactor.queues set max_running = null where name = 'slow'")
    assert dict(await connection.fetchrow(limits) or {}) == {"max_running": None, "rate": 7}
    await connection.execute("update reactor.queues set max_running = 3 where name = 'slow'")
    await connection.execute("delete from reactor.limits where queue = 'slow'")
    assert await connection.fetchval(queue) is None


async def test_jobs_that_ran_before_the_limit_are_counted(connection: Connection, worker: Worker) -> None:
    await insert_many(connection, 5)
    jobs = await claim(connection, worker, 3)
    await limit(connection, job_type="work", max_running=3)
    assert await claim(connection, worker, 5) == []
    await finish(connection, jobs[:1])
    assert len(await claim(connection, worker, 5)) == 1


async def test_a_changed_limit_applies_to_the_next_claim(connection: Connection, worker: Worker) -> None:
    await limit(connection, job_type="work", lane="*", max_running=1)
    await insert_many(connection, 9, lane="a")
    assert len(await claim(connection, worker, 9)) == 1
    assert await claim(connection, worker, 9) == []
    await connection.execute("update reactor.limits set max_running = 4")
    assert len(await claim(connection, worker, 9)) == 3
    await connection.execute("delete from reactor.limits")
    assert len(await claim(connection, worker, 9)) == 5


async def test_an_exception_opens_a_line_that_the_limit_of_each_lane_has_closed(
    connection: Connection, worker: Worker
) -> None:
    await limit(connection, job_type="work", lane="*", max_running=1)
    await insert_many(connection, 1, lane="x")
    assert len(await claim(connection, worker, 5)) == 1
    await connection.execute(_GROW_OLD)
    await insert_many(connection, 3, lane="a")
    assert len(await claim(connection, worker, 5)) == 1
    assert await claim(connection, worker, 5) == []
    await limit(connection, job_type="work", lane="a")
    assert len(await claim(connection, worker, 5)) == 2


async def test_jobs_that_ran_under_an_exception_count_when_it_is_removed(
    connection: Connection, worker: Worker
) -> None:
    await limit(connection, job_type="work", lane="*", max_running=1)
    await limit(connection, job_type="work", lane="a")
    await insert_many(connection, 1, lane="x")
    assert len(await claim(connection, worker, 5)) == 1
    await connection.execute(_GROW_OLD)
    await insert_many(connection, 3, lane="a")
    assert len(await claim(connection, worker, 3)) == 3
    await connection.execute("delete from reactor.limits where lane = 'a'")
    await insert_many(connection, 1, lane="a")
    assert await claim(connection, worker, 5) == []


async def test_a_claim_that_was_under_way_when_a_rate_was_created_does_not_pay_for_it(connection: Connection) -> None:
    """It has chosen its jobs without the rate, and may be of any size: others must not wait for all of them. Nor has it
    the lock under which claims write the row of that rate."""
    await insert_many(connection, 10)
    await limit(connection, job_type="work", rate=1, period=timedelta(hours=1), burst=3)
    charge = "select reactor.charge_limits(array(select id from reactor.jobs), $1)"
    await connection.execute(charge, [])
    assert await connection.fetchval("select count(*) from reactor.rates") == 0
    for _ in range(2):
        await connection.execute(charge, await locks(connection, ("", "work")))
        ahead = await connection.fetchval("select paid_until - clock_timestamp() from reactor.rates")
        assert timedelta(hours=2.9) < ahead <= timedelta(hours=3)


async def locks(connection: Connection, *kinds: tuple[str, str]) -> list[int]:
    """Of kinds and limits."""
    return [await connection.fetchval("select reactor.limit_bucket($1, $2)", *kind) for kind in kinds]


async def test_a_changed_rate_starts_anew_and_one_with_another_number_of_running_jobs_goes_on(
    connection: Connection, worker: Worker
) -> None:
    await limit(connection, job_type="work", rate=1, burst=1, period=timedelta(hours=1), max_running=9)
    await insert_many(connection, 9)
    assert len(await claim(connection, worker, 5)) == 1
    await connection.execute("update reactor.limits set max_running = 8")
    assert await claim(connection, worker, 5) == []
    await connection.execute("update reactor.limits set burst = 2, rate = 2")
    assert len(await claim(connection, worker, 5)) == 2
    assert await claim(connection, worker, 5) == []


@pytest.mark.parametrize(
    "change",
    [
        "update reactor.limits set rate = 7, burst = 7",
        "delete from reactor.limits",
        "insert into reactor.limits (job_type, lane) values ('work', 'a')",
    ],
)
async def test_a_claim_does_not_wait_for_the_transaction_of_an_operator_who_changes_a_rate(
    connection: Connection, connections: list[Connection], worker: Worker, change: str
) -> None:
    await limit(connection, job_type="work", lane="*", rate=4, burst=2, period=timedelta(minutes=1))
    await insert_many(connection, 4, lane="a")
    assert len(await claim(connection, worker, 1)) == 1
    async with connections[0].transaction():
        await connections[0].execute(change)
        async with asyncio.timeout(20):
            assert len(await claim(connection, worker, 5)) == 1
    assert len(await claim(connection, worker, 5)) > 0


async def test_a_changed_exception_leaves_the_rates_of_other_lanes(connection: Connection, worker: Worker) -> None:
    await limit(connection, job_type="work", lane="*", rate=1, burst=1, period=timedelta(hours=1))
    await limit(connection, job_type="work", lane="a", rate=5)
    await insert_many(connection, 2, lane="b")
    assert len(await claim(connection, worker, 5)) == 1
    await connection.execute("delete from reactor.limits where lane = 'a'")
    assert await claim(connection, worker, 5) == []


async def test_an_exception_forgets_the_rate_of_its_lane(connection: Connection, worker: Worker) -> None:
    await limit(connection, job_type="work", lane="*", rate=1, burst=1, period=timedelta(hours=1))
    await insert_many(connection, 2, lane="a")
    assert len(await claim(connection, worker, 5)) == 1
    await limit(connection, job_type="work", lane="a", rate=100)
    assert len(await claim(connection, worker, 5)) == 1


async def test_a_claim_that_starts_at_a_mark_respects_limits(connection: Connection, worker: Worker) -> None:
    await limit(connection, job_type="work", max_running=2)
    await insert_many(connection, 9)
    marks = '[{"queue": "default", "job_type": "work", "priority": 0, "id": 0}]'
    assert len((await claim_once(connection, worker, 5, marks)).jobs) == 2
    assert (await claim_once(connection, worker, 5, marks)).jobs == []


async def test_a_claim_that_frees_scopes_first_respects_limits(connection: Connection, worker: Worker) -> None:
    await limit(connection, job_type="work", max_running=1)
    await insert(connection, scope="s")
    for _ in range(3):
        await connection.execute("insert into reactor.freed_scopes (scope) values ('s'), ('other')")
        await insert_many(connection, 3)
        await claim(connection, worker, 5)
    assert await connection.fetchval("select count(*) from reactor.jobs where state = 'running'") == 1


async def test_a_claim_does_not_wait_for_one_that_opens_the_lines_of_a_removed_limit(
    connection: Connection, connections: list[Connection], worker: Worker
) -> None:
    await limit(connection, job_type="work", lane="*", max_running=1)
    for queue in ("a", "b"):
        await insert_many(connection, 2, lane=queue, queue=queue)
    assert len(await claim(connection, worker, 5)) == 2
    await connection.execute("delete from reactor.limits")
    a, b = replace(worker, queues=("a",)), replace(worker, queues=("b",))
    async with connection.transaction():
        assert len(await claim(connection, a, 1)) == 1
        async with asyncio.timeout(20):
            jobs, _, opens_in = await claim_once(connections[0], b, 1)
        assert jobs == []
        assert opens_in is not None
    assert len(await claim(connection, b, 1)) == 1


async def test_a_claim_waits_for_no_line_that_it_opens_for_another_kind(
    connection: Connection, connections: list[Connection]
) -> None:
    """Claims of that kind which began before the limit was created don't know the lock of the limit."""
    await connection.execute(
        "insert into reactor.lines select q, 'work', 'l', 0, now(), 'infinity' from unnest(array['a', 'b']) q"
    )
    await connection.execute("insert into reactor.departures values ('', 'work', 'l')")
    other, take = connections[0], "select opened_others from reactor.take_news('{b}', '{work}', $1)"
    departures = "select queue from reactor.departures order by queue"
    assert await connection.fetchval(take, await locks(connection, ("b", "work"))) is False
    assert [row["queue"] for row in await connection.fetch(departures)] == [""]
    async with other.transaction():
        await other.execute("select from reactor.lines where queue = 'a' for update")
        async with asyncio.timeout(20):
            assert await connection.fetchval(take, await locks(connection, ("b", "work"), ("", "work"))) is True
        assert await connection.fetchval("select array_agg(queue) from reactor.lines where opens_at is null") == ["b"]
        assert [row["queue"] for row in await connection.fetch(departures)] == ["a"]
    take = "select opened_others from reactor.take_news('{a}', '{work}', $1)"
    assert await connection.fetchval(take, await locks(connection, ("a", "work"))) is False
    assert await connection.fetchval("select count(*) from reactor.lines where opens_at is null") == 2


async def test_a_limit_of_zero_stops_its_jobs_and_no_others(connection: Connection, worker: Worker) -> None:
    await limit(connection, queue="slow", max_running=0)
    await insert_many(connection, 300, queue="slow")
    await insert_many(connection, 300, lane="a", queue="slow")
    await insert_many(connection, 5)
    assert {job.queue for job in await claim(connection, worker, 20)} == {"default"}


async def test_a_claim_of_one_job_respects_limits(connection: Connection, worker: Worker) -> None:
    await limit(connection, job_type="work", lane="*", max_running=1)
    first, second = [await insert(connection, lane="a") for _ in range(2)]
    assert await claim_job(connection, worker, first)
    assert not await claim_job(connection, worker, second)


async def test_a_cancelled_job_keeps_its_place_until_its_handler_has_stopped(
    connection: Connection, worker: Worker
) -> None:
    await limit(connection, job_type="work", max_running=1)
    await insert_many(connection, 2)
    (job,) = await claim(connection, worker, 2)
    await connection.execute("select reactor.cancel(array[$1::bigint], 'no')", job.id)
    assert await claim(connection, worker, 2) == []
    await connection.execute("update reactor.jobs set worker_id = null where id = $1", job.id)
    assert len(await claim(connection, worker, 2)) == 1


async def test_an_abandoned_job_keeps_its_place_until_its_handler_has_stopped(
    connection: Connection, worker: Worker
) -> None:
    await limit(connection, job_type="work", max_running=1)
    await insert_many(connection, 2)
    (job,) = await claim(connection, worker, 2)
    await abandon(connection, job.id, job.attempt_id, Errored("it did not stop", 60.0))
    assert await claim(connection, worker, 2) == []
    await connection.fetch(statements.RELEASE_STOPPED, worker.id, [job.id])
    assert len(await claim(connection, worker, 2)) == 1


@pytest.mark.parametrize("scope", [None, "s"])
async def test_an_abandoned_job_leaves_its_place_though_its_next_claim_knew_no_limit(
    connection: Connection, worker: Worker, scope: str | None
) -> None:
    await limit(connection, job_type="work", max_running=1)
    await insert(connection)
    [job] = await claim(connection, worker, 1)
    await abandon(connection, job.id, job.attempt_id, Errored("it did not stop", 0.0))
    await connection.execute("delete from reactor.limits")
    await connection.execute("update reactor.jobs set run_after = null")
    if scope:
        await insert(connection, scope=scope)
    again = await claim(connection, worker, 2)
    assert len(again) == (2 if scope else 1)
    await finish(connection, again)
    assert await connection.fetch("select * from reactor.places") == []


async def test_retries_of_a_lane_are_found_again(connection: Connection, worker: Worker) -> None:
    await limit(connection, job_type="work", lane="*", max_running=1)
    job_id = await insert(connection, lane="a")
    for _ in range(3):
        (job,) = await claim(connection, worker, 5)
        assert job.id == job_id
        assert await settle(connection, [Ending(job.id, job.attempt_id, Snoozed(0.0))])


async def test_waiting_jobs_of_a_lane_run_when_their_dependency_has_ended(
    connection: Connection, worker: Worker
) -> None:
    first = await insert(connection, lane="a")
    second = await insert(connection, lane="b", after=[first])
    for expected in (first, second):
        jobs = await claim(connection, worker, 5)
        assert [job.id for job in jobs] == [expected]
        await finish(connection, jobs)


async def test_a_scope_is_free_of_the_limits_of_its_jobs(connection: Connection, worker: Worker) -> None:
    """Scopes and lanes compose: one job of the scope at a time, and each in the turn of its lane."""
    for n in range(6):
        await insert(connection, lane=f"lane {n % 2}", scope="s")
    done = []
    for _ in range(6):
        jobs = await claim(connection, worker, 6)
        assert len(jobs) == 1
        done += [job.id for job in jobs]
        await finish(connection, jobs)
    assert done == sorted(done)


async def test_lanes_take_turns(connection: Connection, worker: Worker) -> None:
    """One lane's thousand jobs do not delay the three of each other lane."""
    await insert_many(connection, 1000, lane="big")
    for n in range(9):
        await insert_many(connection, 3, lane=f"small {n}")
    taken: list[str] = []
    for batch in (1, 4, 10, 5, 10):
        taken += await lanes_of(connection, await claim(connection, worker, batch))
    assert Counter(taken)["big"] == 3
    assert all(Counter(taken)[f"small {n}"] == 3 for n in range(9))


async def test_jobs_without_a_lane_take_turns_with_lanes(connection: Connection, worker: Worker) -> None:
    await insert_many(connection, 100)
    for lane in ("a", "b", "c"):
        await insert_many(connection, 100, lane=lane)
    taken: list[str] = []
    for _ in range(40):
        taken += await lanes_of(connection, await claim(connection, worker, 1))
    assert set(Counter(taken).values()) == {10}


async def test_priority_comes_before_turns(connection: Connection, worker: Worker) -> None:
    await insert_many(connection, 10, lane="a")
    urgent = [await insert(connection, lane="b", priority=-1) for _ in range(5)]
    assert [job.id for job in await claim(connection, worker, 5)] == urgent


@pytest.mark.parametrize("batch", [1, 10])
async def test_queues_take_turns(connection: Connection, worker: Worker, batch: int) -> None:
    """A job in a queue of its own does not wait for 400 older ones of another queue."""
    await insert_many(connection, 400, queue="a")
    last = await insert(connection, queue="b")
    taken: list[int] = []
    while last not in taken:
        taken += [job.id for job in await claim(connection, worker, batch)]
    assert len(taken) <= 20  # one of two, at random: later than that in one of a million runs
    before = len(taken)
    await insert_many(connection, 100, queue="c")
    for _ in range(40 // batch):
        taken += [job.id for job in await claim(connection, worker, batch)]
    queues = await connection.fetch(
        "select queue, count(*) from reactor.jobs where id = any ($1) group by queue", taken[before:]
    )
    assert all(count >= 8 for _, count in queues)


async def test_slots_limit_what_a_worker_takes_from_a_queue(connection: Connection, worker: Worker) -> None:
    for queue in ("a", "b"):
        await insert_many(connection, 20, queue=queue)
        await insert_many(connection, 20, lane="l", queue=queue)
    rows = await connection.fetch(
        "select queue from reactor.claim($1, 10, array['a', 'b'], array['work'], array[3], slots => array[2, 100]) "
        "where id is not null",
        worker.id,
    )
    assert Counter(row["queue"] for row in rows) == {"a": 2, "b": 8}


async def test_slots_count_what_a_claim_has_taken_before_it_continued(connection: Connection, worker: Worker) -> None:
    """Behind jobs that wait for their scope."""
    worker = replace(worker, queues=("default",))
    for _ in range(2):
        await insert(connection, scope="s")
    await insert_many(connection, 5)
    jobs, again, _ = await claim_once(connection, worker, 5, free={"default": 2})
    assert len(jobs) == 1
    assert again is Again.NOW
    jobs, _, _ = await claim_once(connection, worker, 5, free={"default": 1})
    assert len(jobs) == 1


async def test_a_rate_is_exact_over_all_claimers(connection: Connection, database: str, worker: Worker) -> None:
    """Never more than the burst and what the time has added. Not much less either: `python -m bench.limits` measures
    how much, on a machine that does nothing else."""
    rate, burst = 100, 10
    await limit(connection, job_type="work", rate=rate)
    await insert_many(connection, 400)
    starts: list[float] = []
    longest = 0.0  # the time between what a claim pays for and the start of its jobs

    async def pod(own: Connection) -> None:
        nonlocal longest
        while len(starts) < 250:
            before = time.monotonic()
            jobs, again, opens_in = await claim_once(own, worker, 5)
            longest = max(longest, time.monotonic() - before)
            starts.extend(job.locked_at.timestamp() for job in jobs)
            assert jobs or again
            await asyncio.sleep(min(opens_in or 0.0, 0.02))

    async with AsyncExitStack() as stack, asyncio.timeout(60):
        await asyncio.gather(
            *[pod(await stack.enter_async_context(connect(database, name=f"pod {n}"))) for n in range(4)]
        )
    starts.sort()
    for first in range(0, len(starts), 5):
        for last in range(first + 5, len(starts), 7):
            assert last - first + 1 <= burst + (starts[last] - starts[first] + longest) * rate + 1.5
    assert (len(starts) - burst) / (starts[-1] - starts[0]) >= 0.5 * rate


async def test_a_claim_writes_no_turn_of_a_kind_that_it_has_not_locked(connection: Connection) -> None:
    """One that had no lanes when the claim looked: another claim may write the turns of the same kinds, in another
    order."""
    await connection.execute("insert into reactor.lines values ('default', 'work', 'a', 0, now())")
    leave = "select reactor.leave_lines('{default}', '{work}', '{null}', '{null}', '{1}', $1, $2)"
    for our_queues, our_types, turns in (([], [], 0), (["mail"], ["work"], 0), (["default"], ["work"], 1)):
        await connection.execute(leave, our_queues, our_types)
        assert await connection.fetchval("select count(*) from reactor.lines where lane = ''") == turns


async def test_a_rate_says_when_the_next_job_may_start(connection: Connection, worker: Worker) -> None:
    await connection.execute(
        "insert into reactor.limits (job_type, lane, rate, period, burst) values ('work', '*', 1, '1 hour', 2)"
    )
    await insert_many(connection, 5, lane="a")
    jobs, again, opens_in = await claim_once(connection, worker, 5)
    assert len(jobs) == 2
    assert again is Again.LIMITED
    assert opens_in == pytest.approx(3600, abs=60)


# While a claim writes the jobs that it has chosen, the time comes at which the rates allow the next one.
_TIME_PASSES = """
create function pg_temp.pass_time() returns trigger language plpgsql as $$
begin
    update reactor.rates set paid_until = clock_timestamp();
    return null;
end
$$;
create trigger pass_time after update on reactor.jobs for each row execute function pg_temp.pass_time()
"""


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param([{"lane": "*"}], id="of each lane"),
        pytest.param([{}], id="of the type"),
        pytest.param([{"queue": "narrow", "lane": "*"}, {"queue": "narrow"}], id="of the queue and its lanes"),
    ],
)
async def test_a_rate_that_allows_more_while_a_claim_is_under_way_needs_no_wake_up(
    connection: Connection, worker: Worker, limits: list[dict[str, str]]
) -> None:
    """Nothing else announces it. The claim has left the jobs, because the rate was used up when it looked."""
    for columns in limits:
        await limit(connection, **{"job_type": "work", "rate": 1, "period": timedelta(hours=1), "burst": 1} | columns)
    await insert_many(connection, 4, lane="a", queue="narrow")
    await connection.execute(_TIME_PASSES)
    for _ in range(3):
        jobs, again, opens_in = await claim_once(connection, worker, 10)
        assert len(jobs) == 1
        assert (again, opens_in) == (Again.LIMITED, 0)
    assert len((await claim_once(connection, worker, 10)).jobs) == 1


@pytest.mark.parametrize("others", [0, 1, 5])
@pytest.mark.parametrize("lane", [None, "a"])
async def test_a_rate_of_another_queue_that_allows_more_while_a_claim_is_under_way_needs_no_wake_up(
    connection: Connection, worker: Worker, others: int, lane: str | None
) -> None:
    """The claim has left out the queue as a whole, by an estimate."""
    await limit(connection, queue="narrow", rate=1, period=timedelta(hours=1), burst=1)
    for n in range(others):
        await limit(connection, queue=f"plain {n}", max_running=9)
    await insert_many(connection, 2, queue="narrow", lane=lane)
    assert len(await claim(connection, worker, 10)) == 1
    await connection.execute(_TIME_PASSES)
    for n in range(max(1, others)):
        await insert_many(connection, 1, queue=f"plain {n}")
    jobs, again, opens_in = await claim_once(connection, worker, 10)
    assert "narrow" not in {job.queue for job in jobs}
    assert len(jobs) == max(1, others)
    assert (again, opens_in) == (Again.LIMITED, 0)
    assert [job.queue for job in await claim(connection, worker, 10)] == ["narrow"]


async def test_a_rate_that_is_not_used_up_is_no_reason_to_claim_again(connection: Connection, worker: Worker) -> None:
    await limit(connection, job_type="work", rate=1, period=timedelta(hours=1), burst=10)
    await limit(connection, queue="full", max_running=0)
    await insert_many(connection, 2, queue="full")
    await insert_many(connection, 2)
    jobs, again, opens_in = await claim_once(connection, worker, 5)
    assert (len(jobs), again, opens_in) == (2, Again.LIMITED, None)


@pytest.mark.parametrize("is_paused", [False, True])
async def test_a_lane_whose_queue_may_not_run_is_no_reason_to_claim_again(
    connection: Connection, worker: Worker, is_paused: bool
) -> None:
    """Its rate allows more. That the queue is resumed or has room again is announced."""
    await limit(connection, queue="default", max_running=1)
    await limit(connection, job_type="work", lane="*", rate=1, period=timedelta(hours=1), burst=1)
    await insert_many(connection, 2, lane="a")
    jobs = await claim(connection, worker, 5)
    assert len(jobs) == 1
    if is_paused:
        await connection.execute("update reactor.queues set paused = true; delete from reactor.limits where lane = ''")
        await claim(connection, worker, 5)
    await connection.execute("update reactor.rates set paid_until = now(); update reactor.lines set opens_at = now()")
    assert await claim_once(connection, worker, 5) == ([], Again.LIMITED, None)
    await finish(connection, jobs)
    await connection.execute("update reactor.queues set paused = false")
    assert len(await claim(connection, worker, 5)) == 1


async def test_a_claim_that_leaves_news_of_lines_is_followed_by_another(connection: Connection, worker: Worker) -> None:
    """Their notifications have come already. There may be many, after a pause."""
    await limit(connection, job_type="work", lane="*", max_running=1)
    await insert_many(connection, 2, lane="a")
    await connection.execute(
        "insert into reactor.arrivals select a.* from reactor.arrivals a cross join generate_series(1, 2500)"
    )
    await insert_many(connection, 1, lane="b")
    jobs, again, _ = await claim_once(connection, worker, 5)
    assert (len(jobs), again) == (1, Again.NOW)
    jobs, again, _ = await claim_once(connection, worker, 5)
    assert (await lanes_of(connection, jobs), again) == (["b"], Again.LIMITED)


async def test_a_claim_that_leaves_out_some_of_many_queues_is_followed_by_another(
    connection: Connection, worker: Worker
) -> None:
    """It looks at the most urgent ones, and the limit that they share lets it take few of their jobs."""
    await limit(connection, job_type="work", max_running=2)
    await connection.execute(
        "insert into reactor.jobs (job_type, queue) select 'work', 'queue ' || n from generate_series(1, 120) n"
    )
    await connection.execute("insert into reactor.jobs (job_type, priority) values ('other', 5)")
    worker = replace(worker, job_types={"work": None, "other": None})
    jobs, again, _ = await claim_once(connection, worker, 60)
    assert ([job.job_type for job in jobs], again) == (["work"] * 2, Again.LATER)
    jobs, again, _ = await claim_once(connection, worker, 60)
    assert ([job.job_type for job in jobs], again) == (["other"], Again.LIMITED)


async def test_a_producer_can_not_change_limits(connection: Connection) -> None:
    async with connection.transaction():
        await connection.execute("set local role reactor_producer")
        await insert(connection, lane="a")
        for statement in (
            "insert into reactor.limits (queue, max_running) values ('default', 0)",
            "delete from reactor.arrivals",
            "update reactor.limit_locks set bucket = 1",
            "select reactor.charge_limits(array[1], '{}')",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with connection.transaction():
                    await connection.execute(statement)


@pytest.mark.parametrize("lane", ["", "*", "a\nb", "x" * 1001])
async def test_invalid_lanes_are_refused(connection: Connection, lane: str) -> None:
    with pytest.raises(asyncpg.PostgresError, match="is not a valid lane"):
        await insert(connection, lane=lane)


async def test_a_job_that_no_limit_counts_ends_with_a_hot_update(connection: Connection, worker: Worker) -> None:
    await limit(connection, job_type="other", max_running=1)
    if int(await connection.fetchval("show server_version_num")) < 160000:
        pytest.skip("before PostgreSQL 16, BRIN indexes prevent HOT updates")
    await insert_many(connection, 1)
    jobs = await claim(connection, worker, 1)
    hot = "select n_tup_hot_upd from pg_stat_xact_user_tables where relid = 'reactor.jobs'::regclass"
    async with connection.transaction():
        before = await connection.fetchval(hot)
        await finish(connection, jobs)
        assert await connection.fetchval(hot) == before + 1


async def test_housekeeping_repairs_what_changes_by_hand_left_behind(connection: Connection, worker: Worker) -> None:
    await limit(connection, job_type="work", max_running=1)
    await insert_many(connection, 2, lane="a")
    (job,) = await claim(connection, worker, 5)
    await connection.execute("delete from reactor.jobs where id = $1", job.id)
    await connection.execute("delete from reactor.lines; delete from reactor.arrivals")
    assert await claim(connection, worker, 5) == []
    assert tuple(await connection.fetchrow(statements.REPAIR_LINES) or ()) == (1, 1)
    assert len(await claim(connection, worker, 5)) == 1
    assert tuple(await connection.fetchrow(statements.REPAIR_LINES) or ()) == (0, 0)


class Drill:
    """Eight claim loops without polls: what is not notified, or not reported as a time, is never claimed."""

    LIMITS: ClassVar = {("", "a", ""): 9, ("q1", "", ""): 11, ("q1", "b", ""): 4, ("", "a", "*"): 2, ("q2", "", "*"): 3}

    def __init__(self, database: str, seed: int, seconds: float) -> None:
        self.database = database
        self.random = random.Random(seed)
        self.ends_at = time.monotonic() + seconds
        self.registry = Registry()
        for job_type in ("a", "b", "c"):
            self.registry.register(job_type, max_attempts=1000)(self.work)
        self.pods: list[tuple[ClaimLoop, asyncio.Task[None]]] = []

    async def work(self) -> None:
        await asyncio.sleep(self.random.choice((0, 0, 0.001, 0.005, 0.02, 0.05)))
        if self.random.random() < 0.05:
            raise Retry(after=0.01)

    def rounds(self) -> Iterator[None]:
        while time.monotonic() < self.ends_at:
            yield

    async def start_pod(self) -> tuple[ClaimLoop, asyncio.Task[None]]:
        concurrency = self.random.choice((2, 5, 10))
        loop = await register(self.database, self.registry, concurrency=concurrency, poll_seconds=0)
        return loop, asyncio.create_task(loop.run())

    async def produce(self, connection: Connection) -> None:
        chance = self.random
        for _ in self.rounds():
            rows = [
                (
                    chance.choice("abc"),
                    chance.choice(("q1", "q2", "q3")),
                    chance.choice((0, 0, 5)),
                    f"lane {chance.randrange(50)}" if chance.random() < 0.8 else None,
                    f"scope {chance.randrange(30)}" if chance.random() < 0.1 else None,
                )
                for _ in range(chance.choice((1, 1, 3, 20)))
            ]
            async with connection.transaction():
                await connection.executemany(
                    "insert into reactor.jobs (job_type, queue, priority, lane, scope) values ($1, $2, $3, $4, $5)",
                    rows,
                )
            await asyncio.sleep(chance.choice((0, 0.01, 0.05)))

    async def change_limits(self, connection: Connection) -> None:
        for _ in self.rounds():
            key, most = self.random.choice(list(self.LIMITS.items()))
            await connection.execute(
                "update reactor.limits set max_running = $4 where (queue, job_type, lane) = ($1, $2, $3)",
                *key,
                self.random.randint(1, most),
            )
            await asyncio.sleep(0.1)

    async def kill(self, connection: Connection) -> None:
        for _ in self.rounds():
            await asyncio.sleep(0.4)
            place = self.random.randrange(len(self.pods))
            loop, task = self.pods[place]
            loop.interrupt()
            await task
            await connection.execute(
                "update reactor.workers set lease_until = clock_timestamp() - interval '1 hour' where id = $1",
                loop.worker.id,
            )
            await connection.execute("select reactor.expire_workers()")
            await connection.execute("select reactor.sweep(1000)")
            self.pods[place] = await self.start_pod()

    async def watch(self, connection: Connection, above: list[object]) -> None:
        while True:
            for queue, job_type, lane, running in await connection.fetch(_EACH_LIMIT):
                if running > self.LIMITS[queue, job_type, "*" if lane else ""]:
                    above.append((queue, job_type, lane, running))
            await asyncio.sleep(0.005)


@pytest.fixture
async def drill(database: str) -> AsyncIterator[Drill]:
    drill = Drill(database, seed=random.randrange(1_000_000), seconds=2.5)
    drill.pods += [await drill.start_pod() for _ in range(8)]
    yield drill
    for loop, task in drill.pods:
        loop.interrupt()
        await task


async def test_eight_pods_never_exceed_limits_and_leave_nothing_behind(
    connection: Connection, connections: list[Connection], drill: Drill
) -> None:
    """With 50 lanes, scopes, retries, workers that die and limits that change meanwhile."""
    for (queue, job_type, lane), most in drill.LIMITS.items():
        await limit(connection, queue=queue, job_type=job_type, lane=lane, max_running=most)
    await limit(connection, queue="q2", job_type="c", rate=200)
    above: list[object] = []
    watch = asyncio.create_task(drill.watch(connections[0], above))
    await asyncio.gather(drill.produce(connections[1]), drill.change_limits(connections[2]), drill.kill(connections[3]))
    unfinished = "select count(*) from reactor.jobs where finished_at is null"

    async def is_done() -> bool:
        return bool(await connection.fetchval(unfinished) == 0)

    await until(is_done, within_seconds=60)
    watch.cancel()
    assert above == []
    assert await connection.fetchval("select count(*) from reactor.places") == 0
    assert await connection.fetchval("select count(*) from reactor.lines where lane <> ''") == 0


@pytest.fixture
async def connections(database: str) -> AsyncIterator[list[Connection]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connect(database, name=f"other {n}")) for n in range(4)]
