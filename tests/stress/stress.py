"""A run: rounds of random actions, all at once, each followed by a rest in which everything must end.

    producers, pipelines    insert jobs and edges                                   producers.py
    workers                 claim, run and end them, die, shut down, send too late  workers.py
    operators               cancel, retry, pause, limit, prune, repair              operators.py
    pods' timers            promote due jobs, sweep, let limits grow old            housekeeping.py
    followers               read streams, and reconnect from old cursors            followers.py
    checker                 takes snapshots                                         checker.py
        invariants.py       queries that return offenders
        limits.py           limits and rates, while they are changed
        wakeups.py          a notification for every job that becomes ready
        idleness.py         jobs that no worker picks up, without a fallback poll
        explanations.py     whether `workload` and `why` agree with the tables
        model.py            the journal of all changes: states, order, dependencies
        attempts.py         who ended each attempt, and by which rule

Each round draws which features it uses (`world.draw_mix`). To add one, name it in `world.FEATURES`, act on it where
`mix.has` is asked, and state in invariants.py what must hold.

A seed repeats the choices and not the timing: a violation that depends on a race may take several runs.
"""

import asyncio
import random
import time
from collections.abc import Collection

from reactor.database.connection import Connection, connect
from reactor.feed.feed import Feed
from tests.stress import housekeeping, journal
from tests.stress.attempts import Attempts
from tests.stress.checker import Checker
from tests.stress.followers import Follower
from tests.stress.idleness import Idleness
from tests.stress.limits import Limits
from tests.stress.model import Model
from tests.stress.operators import open_everything, operate, prune, thin_out
from tests.stress.producers import produce, produce_pipelines
from tests.stress.report import Report
from tests.stress.sessions import Sessions
from tests.stress.wakeups import Wakeups
from tests.stress.workers import Fleet
from tests.stress.world import World, draw_mix

_WORKERS = 5
_ROUND_SECONDS = (1.0, 3.0, 6.0)
_FOLLOWERS = 4
_LONGEST_ACTION_SECONDS = 60.0


async def run(
    url: str, *, seconds: float, seed: int, only: Collection[str] = (), until_red: frozenset[str] = frozenset()
) -> Report:
    """`only`: the features to use. `until_red`: end at the first violation of one of these kinds."""
    report, chance = Report(seed), random.Random(seed)
    attempts = Attempts(report)
    world = World(
        sessions=Sessions(url, report, jitter=chance.choice((0.0, 0.01, 0.1))),
        report=report,
        attempts=attempts,
        model=Model(report, attempts),
        limits=Limits(report),
        mix=draw_mix(chance, only),
        seed=seed,
    )
    fleet = Fleet(world)
    feed = Feed(url, url)
    followers = [Follower(world, f"follower {n}", feed, is_overview=n == 0) for n in range(_FOLLOWERS)]
    wakeups = Wakeups(report)
    checker = Checker(world, Idleness(report, fleet.resting), wakeups, followers)
    async with connect(url, name="stress") as connection, asyncio.TaskGroup() as tasks:
        await journal.install(connection)
        await _shorten_deadlocks(connection)

        def ring(*_: object) -> None:
            wakeups.heard()
            fleet.ring()

        await connection.add_listener("reactor_jobs", ring)
        await connection.add_listener("reactor_places", lambda *_: fleet.ring())
        streams = tasks.create_task(feed.run())
        for n in range(_WORKERS):
            tasks.create_task(fleet.keep_alive(n))
        for follower in followers:
            tasks.create_task(follower.run())
        tasks.create_task(checker.run())
        actors = (produce, produce, produce, produce_pipelines, produce_pipelines, operate, operate)
        for n, actor in enumerate((*actors, housekeeping.promote, housekeeping.sweep, housekeeping.age_limits)):
            tasks.create_task(actor(world, f"{actor.__name__} {n}"))
        try:
            await _rounds(world, checker, connection, seconds, only, until_red, chance)
        finally:
            world.is_over = True
            streams.cancel()
    return report


async def _until_red(world: World, seconds: float, until_red: frozenset[str]) -> None:
    over_at = time.monotonic() + seconds
    while time.monotonic() < over_at and not until_red & world.report.totals.keys():
        await asyncio.sleep(min(0.1, seconds))


async def _until_actors_rest(world: World) -> None:
    over_at = time.monotonic() + _LONGEST_ACTION_SECONDS
    while world.busy and time.monotonic() < over_at:
        await asyncio.sleep(0.01)
    if world.busy:
        world.report.violation("stuck", f"actions don't end: {sorted(world.busy)}")


async def _shorten_deadlocks(connection: Connection) -> None:
    """A deadlock would otherwise take a second, in which little happens. For connections that are opened later."""
    database = await connection.fetchval("select quote_ident(current_database())")
    await connection.execute(f"alter database {database} set deadlock_timeout = '100ms'")


async def _rounds(
    world: World,
    checker: Checker,
    connection: Connection,
    seconds: float,
    only: Collection[str],
    until_red: frozenset[str],
    chance: random.Random,
) -> None:
    over_at = time.monotonic() + seconds
    while time.monotonic() < over_at and not until_red & world.report.totals.keys():
        world.mix, world.is_quiet = draw_mix(chance, only), False
        world.report.count("rounds")
        print(f"round {world.report.counts['rounds']}: {world.mix}", flush=True)
        await _until_red(world, chance.choice(_ROUND_SECONDS), until_red)
        world.is_quiet = True
        await _until_actors_rest(world)
        world.mix = world.mix.at_rest()
        await open_everything(world, connection, chance)
        await checker.see_everything()
        await thin_out(world, connection, chance)
        if until_red & world.report.totals.keys() or not await checker.come_to_rest(connection):
            return
        await checker.check_at_rest(connection)
        if chance.random() < 0.7:
            await prune(world, connection, archive=False)
