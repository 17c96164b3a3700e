"""What can grow, and what is measured at each size: the dimensions of costs.py.

Each function prepares a new database, and measures with `meter("what")`. The name of a figure says what one value
covers.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import asyncpg

from bench.backend import Backend, Cost, held_snapshot, open_backend
from reactor.database import statements
from reactor.operate import Operator, cancel, cancel_pipeline, retry_pipeline
from reactor.operate.prune import Retention, prune

CLAIM = 100
REPEATS = 10


@dataclass
class Meter:
    """The costs of one run, by figure. A statement that is measured may take `limit_seconds`."""

    backend: Backend
    limit_seconds: float
    costs: dict[str, list[Cost]] = field(default_factory=dict)
    at_least: dict[str, Cost] = field(default_factory=dict)
    """What a figure had cost when it was stopped."""

    @asynccontextmanager
    async def __call__(self, figure: str, per: int = 1) -> AsyncIterator[None]:
        self.costs.setdefault(figure, [])
        await self.backend.connection.execute(f"set statement_timeout = '{self.limit_seconds}s'")
        cost = Cost()
        try:
            async with self.backend.measured() as cost:
                yield
        except asyncpg.QueryCanceledError:
            self.at_least[figure] = cost / per
            raise
        await self.backend.connection.execute("set statement_timeout = 0")
        self.add(figure, cost / per)

    def add(self, figure: str, cost: Cost) -> None:
        self.costs.setdefault(figure, []).append(cost)

    async def claims(self, what: str = "a claim of 100", *, settle: str | None = None) -> None:
        """Claims of 100 plain jobs, which the caller has inserted, and their ends."""
        self.backend.forget_marks()
        for _ in range(REPEATS):
            await self._claim(what, settle)

    async def _claim(self, what: str, settle: str | None) -> None:
        async with self(what):
            jobs = await self.backend.take(CLAIM)
        assert len(jobs) == CLAIM, f"{len(jobs)} jobs were claimed"
        if settle:
            async with self(settle):
                await self.backend.settle(jobs)
        else:
            await self.backend.settle(jobs)


Run = Callable[[Backend, int, Meter], Awaitable[None]]


@dataclass(frozen=True)
class Dimension:
    title: str
    grows: str
    """What the sizes count."""
    sizes: Sequence[int]
    full: Sequence[int]
    """Further sizes, with --full."""
    run: Run
    bound: str
    """Where the engine refuses, or splits the work."""
    label: Callable[[int], str] = "{:,}".format
    shows_wal: bool = False
    in_use: bool = True
    """In a table with finished jobs."""


async def insert_dag(backend: Backend, count: int, job_type: str, edges: str) -> None:
    """Inserts jobs and the edges between them in one transaction, which connects them at its commit.

    `job_type` is an expression over the job's place `i`, from 1; `edges` selects the places of a job and of one that it
    depends on.
    """
    async with backend.connection.transaction():
        before = await backend.connection.fetchval("select coalesce(max(id), 0) from reactor.jobs")
        await backend.insert(count, job_type=job_type)
        assert await backend.connection.fetchval("select max(id) from reactor.jobs") == before + count
        await backend.connection.execute(
            f"insert into reactor.dependencies (job_id, depends_on) select {before} + e.job, {before} + e.needed "
            f"from ({edges}) e (job, needed)",
            timeout=3600,
        )


async def insert_chain(backend: Backend, size: int) -> None:
    await insert_dag(backend, size, "'work'", f"select i + 1, i from generate_series(1, {size - 1}) i")


async def warm_up(backend: Backend) -> None:
    """The first statements of a session take milliseconds, for plans and catalogs. A worker's sessions are old."""
    for outcome in ("completed", "failed"):
        await insert_chain(backend, 2)
        while jobs := await backend.take(1):
            await backend.settle(jobs, outcome)


async def failing_chain(backend: Backend, size: int, meter: Meter) -> None:
    await insert_chain(backend, size)
    head = await backend.take(1)
    async with meter("the failure of its first job, until all others are cancelled"):
        await backend.settle(head, "failed")
        await backend.finish_ends()
    left = await backend.connection.fetchval("select count(*) from reactor.jobs where state = 'waiting'")
    assert left == 0, f"{left} jobs still wait"


NEIGHBOURS = 300
FAN_OUT_CHUNK = 50_000
WARM_UP = 20


async def settle_neighbours(backend: Backend, jobs: Sequence[asyncpg.Record], done: asyncio.Event) -> float:
    """Ends these jobs one by one until `done`. Returns the longest wait, in microseconds."""
    longest = 0.0
    for job in jobs:
        started = time.perf_counter()
        await backend.settle([job])
        longest = max(longest, (time.perf_counter() - started) * 1e6)
        if done.is_set():
            break
        await asyncio.sleep(0.002)
    return longest


async def insert_fan_out(backend: Backend, size: int) -> None:
    """A job and its dependants, 50,000 per transaction. Each related job is a second predecessor of one of them."""
    await backend.insert(
        1 + 2 * NEIGHBOURS,
        job_type=f"case when i = 1 then 'work' when i <= {1 + NEIGHBOURS} then 'related' else 'unrelated' end",
    )
    head = await backend.connection.fetchval("select max(id) from reactor.jobs") - 2 * NEIGHBOURS
    for start in range(0, size, FAN_OUT_CHUNK):
        count = min(size - start, FAN_OUT_CHUNK)
        async with backend.connection.transaction():
            before = await backend.connection.fetchval("select max(id) from reactor.jobs")
            await backend.insert(count, job_type="'child'")
            await backend.connection.execute(
                f"insert into reactor.dependencies (job_id, depends_on) "
                f"select {before} + i, {head} from generate_series(1, {count}) i union all "
                f"select {before - start + 1} + n::bigint * {size} / {NEIGHBOURS}, {head + 1} + n "
                f"from generate_series(0, {NEIGHBOURS - 1}) n "
                f"where n::bigint * {size} / {NEIGHBOURS} between {start} and {start + count - 1}",
                timeout=3600,
            )


async def fan_out(backend: Backend, size: int, meter: Meter) -> None:
    await insert_fan_out(backend, size)
    head = await backend.take(1)
    done = asyncio.Event()
    async with open_backend(backend.url) as one, open_backend(backend.url) as other:
        sessions = {"unrelated": one, "related": other}
        jobs = {name: await session.take(NEIGHBOURS, [name]) for name, session in sessions.items()}
        for name, session in sessions.items():
            for job in jobs[name][:WARM_UP]:
                await session.settle([job])
        tasks = {
            name: asyncio.create_task(settle_neighbours(session, jobs[name][WARM_UP:], done))
            for name, session in sessions.items()
        }
        try:
            async with meter("its end, until all dependants are released"):
                await backend.settle(head)
                await backend.finish_ends()
        finally:
            done.set()
            waits = {name: await task for name, task in tasks.items()}
    meter.add("the longest end of an unrelated job meanwhile", Cost(wall_us=waits["unrelated"]))
    meter.add("the longest end of a job with a dependant in common", Cost(wall_us=waits["related"]))


async def fan_in(backend: Backend, size: int, meter: Meter) -> None:
    await insert_dag(
        backend,
        size + 1,
        f"case when i <= {size} then 'work' else 'end' end",
        f"select {size + 1}, i from generate_series(1, {size}) i",
    )
    figure, total = "the ends of all predecessors, 100 at a time", Cost()
    while jobs := await backend.take(CLAIM):
        async with backend.measured() as cost:
            await backend.settle(jobs)
        total += cost
        if total.wall_us > meter.limit_seconds * 1e6:
            meter.at_least[figure] = total
            raise TimeoutError
    meter.add(figure, total)
    assert await backend.take(1, ["end"])


async def children(backend: Backend, size: int, meter: Meter) -> None:
    await backend.insert(1)
    parents = await backend.take(1)
    specification = json.dumps([{"job_type": "child", "payload": {"n": n}} for n in range(size)])
    async with meter("creating them with the end of their parent"), backend.connection.transaction():
        await backend.connection.execute(
            "select reactor.chain($1::bigint[], $2::uuid[], $3::jsonb[])",
            [parents[0]["id"]],
            [parents[0]["attempt_id"]],
            [specification],
        )
        await backend.settle(parents)


async def submit_pipeline(backend: Backend, size: int, meter: Meter) -> None:
    shapes = {
        "a chain": [[n] if n else [] for n in range(size)],
        "a fan-out and a fan-in": [[], *([1] for _ in range(size - 2)), list(range(2, size))],
    }
    for name, shape in shapes.items():
        jobs = json.dumps([{"job_type": "work", "depends_on": needs} for needs in shape])
        async with meter(f"`submit_pipeline` of {name}, with its commit"):
            await backend.connection.execute("select count(*) from reactor.submit_pipeline($1::jsonb)", jobs)


HELD_PER_QUEUE = 2


async def limited_queues(backend: Backend, size: int, meter: Meter) -> None:
    """Each queue has as many running jobs as its limit allows, and two more that are pending."""
    held = size * HELD_PER_QUEUE
    await backend.insert(held, ", queue", f", 'queue ' || i % {size}")
    queues = [f"queue {n}" for n in range(size)]
    assert len(await backend.take(held, queues=queues)) == held, "the queues could not be filled"
    await backend.insert(held, ", queue", f", 'queue ' || i % {size}")
    await backend.insert(CLAIM * REPEATS)
    await backend.connection.execute(
        "insert into reactor.queues (name, max_running) select unnest($1::text[]), $2", queues, HELD_PER_QUEUE
    )
    await backend.vacuum(analyze=False)
    backend.forget_marks()
    for _ in range(REPEATS):
        async with meter("a claim of 100 from all queues"):
            jobs = await backend.take(CLAIM, queues=None)
        assert len(jobs) == CLAIM, f"{len(jobs)} jobs were claimed"
        async with meter("the end of these 100"):
            await backend.settle(jobs)


KINDS = {1: (1, 1), 20: (20, 1), 200: (20, 10), 2000: (200, 10)}


async def types_and_queues(backend: Backend, size: int, meter: Meter) -> None:
    types, queues = KINDS[size]
    await backend.insert(
        max(2000, size * CLAIM), ", queue", f", 'queue ' || i / {types} % {queues}", job_type=f"'type ' || i % {types}"
    )
    await backend.vacuum(analyze=False)
    names = [f"type {n}" for n in range(types)]
    for _ in range(REPEATS):
        async with meter("a claim of 100 from all queues"):
            jobs = await backend.take(CLAIM, names, None)
        assert len(jobs) == CLAIM, f"{len(jobs)} jobs were claimed"
        await backend.settle(jobs)


async def distinct_scopes(backend: Backend, size: int, meter: Meter) -> None:
    for _ in range(2):
        await backend.insert(size, ", scope", ", 'scope ' || i")
    await backend.vacuum(analyze=False)
    for _ in range(2):
        async with meter("a claim of all of them"):
            jobs = await backend.take(size)
        assert len(jobs) == size, f"{len(jobs)} jobs were claimed"
        async with meter("their end"):
            await backend.settle(jobs)


UNPARKED = "select exists (select from reactor.jobs where scope is not null and state = 'pending' and not parked)"


async def park(backend: Backend) -> Cost:
    """Claims until every pending job that has a scope is parked. The jobs that were claimed stay running."""
    total = Cost()
    while await backend.connection.fetchval(UNPARKED):
        async with backend.measured() as cost:
            await backend.claim(CLAIM)
        total += cost
    return total


async def one_scope(backend: Backend, size: int, meter: Meter) -> None:
    await backend.insert(size, ", scope", ", 'busy'")
    await backend.vacuum(analyze=False)
    holder = await backend.take(1)
    meter.add("parking all but the first", await park(backend))
    await backend.vacuum(analyze=False)
    for _ in range(REPEATS):
        async with meter("the end of the job that holds the scope"):
            await backend.settle(holder)
        async with meter("the claim of the next one"):
            holder = await backend.take(1)
        assert len(holder) == 1, f"{len(holder)} jobs were claimed"


async def beside_parked(backend: Backend, size: int, meter: Meter) -> None:
    await backend.insert(size, ", scope, priority", f", 'scope ' || i % {max(1, size // 100)}, -1")
    await park(backend)
    await backend.insert(CLAIM * REPEATS)
    await backend.vacuum(analyze=False)
    await meter.claims()


async def scheduled(backend: Backend, size: int, meter: Meter) -> None:
    await backend.insert(size, ", run_after, priority", ", now() + interval '1 day', -1")
    await backend.insert(CLAIM * REPEATS)
    await backend.vacuum(analyze=False)
    await meter.claims()
    await backend.connection.execute("set session_replication_role = replica")
    await backend.connection.execute(
        "update reactor.jobs set run_after = now() where run_after is not null", timeout=3600
    )
    await backend.connection.execute("set session_replication_role = origin")
    await backend.vacuum(analyze=False)
    async with meter("moving all of them to the ready jobs, when they are due"):
        while await backend.connection.fetchval(statements.PROMOTE_DUE, 1000):
            pass


async def held_xmin(backend: Backend, size: int, meter: Meter) -> None:
    await backend.insert(size + CLAIM * REPEATS)
    await backend.vacuum(analyze=False)
    await backend.run(size, 1000)
    await meter.claims("a claim of 100, without that session")
    await backend.insert(size + 2 * CLAIM * REPEATS)
    await backend.vacuum(analyze=False)
    async with held_snapshot(backend.url):
        await backend.run(size, 1000)
        held = []
        async with meter("a claim of 100 by a worker, mean", per=REPEATS):
            for _ in range(REPEATS):
                held += await backend.take(CLAIM)
        for start in range(0, len(held), CLAIM):
            async with meter("the end of 100"):
                await backend.settle(held[start : start + CLAIM])
        for _ in range(REPEATS):
            backend.forget_marks()
            async with meter("a claim of 100 that starts at the beginning"):
                await backend.take(CLAIM)


async def finished(backend: Backend, size: int, meter: Meter) -> None:
    await backend.insert(1)
    await backend.run(1, 1)
    await backend.copy(1, size)
    await backend.insert(CLAIM * REPEATS)
    await backend.vacuum(analyze=False)
    await meter.claims(settle="the end of these 100")


async def prune_pipelines(backend: Backend, size: int, meter: Meter) -> None:
    for is_open in (True, False):
        await backend.connection.execute("truncate reactor.jobs cascade")
        pipeline = uuid4()
        await backend.insert(size, ", pipeline_id", f", '{pipeline}'")
        await backend.run(size - is_open, 1000)
        await backend.vacuum(analyze=False)
        async with meter("a prune while one job is open" if is_open else "a prune that removes the pipeline"):
            removed = [pruned.jobs async for pruned in prune(backend.connection, Retention(0))]
        assert removed[-1] == (0 if is_open else size), removed


async def keyed_inserts(backend: Backend, size: int, meter: Meter) -> None:
    await backend.insert(size, ", idempotency_key", ", 'key ' || i")
    await backend.vacuum(analyze=False)
    insert = "insert into reactor.jobs (job_type, idempotency_key) values ('work', $1) on conflict do nothing"
    for _ in range(3):
        async with meter("an insert with a new key", per=100):
            for _ in range(100):
                await backend.connection.execute(insert, str(uuid4()))
        async with meter("an insert with a key that is taken", per=100):
            for n in range(100):
                await backend.connection.execute(insert, f"key {n + 1}")


OPERATOR = Operator("bench", "bench")


async def cancel_and_retry(backend: Backend, size: int, meter: Meter) -> None:
    pipeline = uuid4()
    await backend.insert(size, ", pipeline_id", f", '{pipeline}'")
    async with meter("cancelling all of them"):
        await cancel_pipeline(backend.connection, pipeline, "bench", OPERATOR)
    async with meter("retrying all of them"):
        await retry_pipeline(backend.connection, pipeline, OPERATOR)
    await cancel_pipeline(backend.connection, pipeline, "bench", OPERATOR)
    ids = await backend.connection.fetch(statements.PIPELINE_JOBS, pipeline, ["cancelled"])
    _, longest = await retry_in_steps(backend, [record["id"] for record in ids])
    meter.add("the longest transaction of that", longest)

    await insert_chain(backend, size)
    first = await backend.connection.fetchval("select max(id) from reactor.jobs") - size + 1
    await cancel(backend.connection, [first], "bench", OPERATOR)
    await backend.finish_ends()
    total, longest = await retry_in_steps(backend, [first])
    meter.add("retrying the first of a chain of as many", total)
    meter.add("the longest transaction of that chain", longest)


async def retry_in_steps(backend: Backend, ids: list[int]) -> tuple[Cost, Cost]:
    """What a retry costs in total, and its longest transaction."""
    async with backend.measured() as cost:
        await backend.connection.fetch(statements.RETRY, ids)
    costs = [cost]
    pause: float | None = (
        0.0 if await backend.connection.fetchval("select exists (select from reactor.retries)") else None
    )
    while pause is not None:
        async with backend.measured() as cost:
            pause = await backend.connection.fetchval("select next_in_seconds from reactor.retry_more(1000)")
        costs.append(cost)
    return sum(costs, Cost()), max(costs, key=lambda cost: cost.cpu_us)


async def dead_worker(backend: Backend, size: int, meter: Meter) -> None:
    await backend.insert(size)
    while await backend.take(1000):
        pass
    await backend.connection.execute("update reactor.workers set lease_until = now()")
    async with meter("taking back all of them"):
        while await backend.connection.fetch(statements.SWEEP, 500):
            pass


EDGES = "a transaction that inserts more than 100,000 dependencies is refused"
HTTP = "a request to the HTTP API has at most 10,000 jobs, 100,000 dependencies and 8 MiB"
ENDS = "An end handles 1,000 dependants; the rest follows in transactions of 1,000 each."

DIMENSIONS = [
    Dimension(
        "A failing chain", "jobs in the chain", (100, 1_000, 10_000), (), failing_chain,
        f"{EDGES}. {ENDS}",
    ),
    Dimension(
        "Fan-out of one end", "jobs that wait for one", (100, 1_000, 10_000), (100_000,), fan_out,
        f"{EDGES}; further ones may depend on the same job. {ENDS}",
    ),
    Dimension(
        "Fan-in", "jobs that one waits for", (100, 1_000, 10_000), (100_000,), fan_in,
        f"{EDGES}, and a job gets all of its dependencies in one. Workers end at most 500 jobs per statement.",
    ),
    Dimension(
        "Children of one end", "children", (100, 1_000, 10_000), (100_000,), children,
        "an attempt that chains more than 100,000 jobs is refused; "
        "more than 1,000 are written on a connection of their own.",
    ),
    Dimension(
        "Submitting a pipeline", "jobs in the pipeline", (10, 100, 1_000, 10_000), (), submit_pipeline,
        f"{EDGES}; {HTTP}.",
    ),
    Dimension(
        "Limited queues", "queues, each with two running and two pending jobs", (1, 10, 100, 1_000), (),
        limited_queues, "none.",
    ),
    Dimension(
        "Job types and queues", "types by queues, each with 100 pending jobs", tuple(KINDS), (), types_and_queues,
        "a claim looks at the most urgent pairs of a type and a queue, at most as many as it may claim jobs.",
        label=lambda size: "{} by {}".format(*KINDS[size]),
    ),
    Dimension(
        "Scopes in one claim", "jobs, each in its own scope", (10, 100, 1_000), (10_000,), distinct_scopes,
        "a worker claims at most its concurrency, 10,000. Scopes are locked by 4,096 rows and not in PostgreSQL's lock "
        "table. An end frees at most 1,000 scopes; the next claims free the rest, 200 at a time.",
    ),
    Dimension(
        "Jobs in one scope", "jobs in the scope", (100, 1_000, 10_000), (100_000,), one_scope,
        "a claim parks the jobs that it finds in six windows of at most 1,000 jobs; the next claim continues.",
    ),
    Dimension(
        "Parked jobs", "parked jobs in front, 100 per scope", (100, 1_000, 10_000), (100_000,), beside_parked,
        "none.",
    ),
    Dimension(
        "Scheduled jobs", "scheduled jobs", (100, 1_000, 10_000), (100_000,), scheduled,
        "none; 1,000 due jobs are moved per transaction.",
    ),
    Dimension(
        "Dead row versions", "jobs that ran since another session's snapshot", (1_000, 10_000, 100_000), (), held_xmin,
        "none; `reactor doctor` reports transactions that stay open.",
    ),
    Dimension(
        "Finished jobs", "finished jobs in the table", (1_000, 10_000, 100_000), (1_000_000,), finished,
        "none.", in_use=False,
    ),
    Dimension(
        "Cancelling and retrying", "jobs in the pipeline", (100, 1_000, 10_000), (100_000,), cancel_and_retry,
        "a transaction cancels 1,000 jobs, or starts 1,000 over. The first one of a retry reads all that are named.",
    ),
    Dimension(
        "A dead worker", "jobs that it held", (100, 1_000, 10_000), (), dead_worker,
        "a transaction takes back 500 jobs; a worker holds at most its concurrency, 10,000.",
    ),
    Dimension(
        "Pruning", "jobs in one pipeline", (100, 1_000, 10_000), (100_000,), prune_pipelines,
        "a transaction reads or removes about 1,000 jobs.", shows_wal=True, in_use=False,
    ),
    Dimension(
        "Idempotency keys", "jobs with a key", (1_000, 10_000, 100_000), (), keyed_inserts,
        "none; a key has at most 1,000 bytes.",
    ),
]  # fmt: skip
