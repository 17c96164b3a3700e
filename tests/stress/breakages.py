"""Breaks the engine on purpose, one guarantee at a time: the stress must notice each.

Every breakage replaces a function by one that calls the original, or by nothing. It edits no text of the schema, and so
outlives changes of that text.
"""

from dataclasses import dataclass

from reactor.database.connection import Connection


@dataclass(frozen=True)
class Breakage:
    name: str
    function: str
    """Kept as `original.<function>`."""
    sql: str
    features: tuple[str, ...]
    """What it takes to notice; nothing else is used, so that nothing else can end the run before."""
    kinds: frozenset[str]
    """The violations that prove it. Others may be found on the way, and prove nothing."""


_KEEP = """
select replace(pg_get_functiondef(p.oid), 'FUNCTION reactor.' || p.proname, 'FUNCTION original.' || p.proname)
from pg_proc p where p.pronamespace = 'reactor'::regnamespace and p.proname = $1
"""

NO_FENCE = Breakage(
    "settle ends any attempt of a job",
    "settle",
    """
    create or replace function reactor.settle(ids bigint[], attempt_ids uuid[], outcomes text[], results jsonb[],
        errors text[], messages text[], delays_seconds float8[], children int[], lock_wait_ms int)
        returns table (id bigint, state text) language sql as $$
        select * from original.settle(ids, array(
                select coalesce(j.attempt_id, u.attempt_id) from unnest(ids, attempt_ids) with ordinality
                    u (id, attempt_id, n) left join reactor.jobs j on j.id = u.id order by u.n),
            outcomes, results, errors, messages, delays_seconds, children, lock_wait_ms)
    $$;
    """,
    ("stale", "errors", "snoozes"),
    frozenset({"fence", "ending"}),
)

NO_NOTIFICATIONS = Breakage(
    "notify_jobs does nothing",
    "notify_jobs",
    "create or replace function reactor.notify_jobs() returns void language plpgsql as $$ begin end $$",
    ("chains", "scoped"),
    frozenset({"no notification", "lost wake-up", "nothing happens"}),
)

SKIPPED_EDGES = Breakage(
    "resolve_dependencies forgets an edge now and then",
    "resolve_dependencies",
    """
    create or replace function reactor.resolve_dependencies(ended bigint[]) returns void language plpgsql as $$
    begin
        perform original.resolve_dependencies(array(select e from unnest(ended) e where random() > 0.02));
    end
    $$;
    """,
    ("chains", "diamonds", "fan-ins"),
    frozenset({"a job waits for nothing", "a job waited for nothing and was repaired", "stuck"}),
)

NO_LIMITS = Breakage(
    "claim ignores the limits of queues",
    "room",
    """
    create or replace function reactor.room(queues text[], types text[], lanes text[])
        returns table (n int, free int, opens_at timestamptz)
    language plpgsql as $$
    begin
        return;
    end
    $$
    """,
    ("limit",),
    frozenset({"limit"}),
)

NO_LANE_LIMITS = Breakage(
    "claim ignores the limits of lanes",
    "room",
    """
    create or replace function reactor.room(queues text[], types text[], lanes text[])
        returns table (n int, free int, opens_at timestamptz)
    language plpgsql as $$
    begin
        return query select * from original.room(queues, types, lanes) r where lanes[r.n] = '';
    end
    $$
    """,
    ("lanes", "limits"),
    frozenset({"limit"}),
)

NO_RATES = Breakage(
    "no start is charged to a rate",
    "charge_limits",
    """
    create or replace function reactor.charge_limits(ids bigint[], locked int[]) returns bigint[] language plpgsql as $$
    declare
        counted bigint[] := original.charge_limits(ids, locked);
    begin
        delete from reactor.rates;
        return counted;
    end
    $$
    """,
    ("lanes", "limits", "rates"),
    frozenset({"rate"}),
)

NO_DEPARTURES = Breakage(
    "the end of a job does not open the line of its lane",
    "leave_places",
    """
    create or replace function reactor.leave_places(ids bigint[]) returns boolean
    language plpgsql security definer as $$
    begin
        delete from reactor.places p where p.job_id = any (ids);
        return found;
    end
    $$
    """,
    ("lanes", "limits"),
    frozenset({"a line is closed without a reason", "lost wake-up", "stuck"}),
)

REFUNDED_STARTS = Breakage(
    "a job that must not start again is refunded when it is released",
    "refund",
    """
    create or replace function reactor.refund(job_id bigint, outcome text) returns int language sql as $$
        select case when outcome in ('released', 'crashed') then 1 else original.refund(job_id, outcome) end
    $$
    """,
    ("once", "releases", "shutdowns"),
    frozenset({"ending", "once", "a job that must not start again is unfinished"}),
)

BREAKAGES = (
    NO_FENCE,
    NO_NOTIFICATIONS,
    SKIPPED_EDGES,
    NO_LIMITS,
    NO_LANE_LIMITS,
    NO_RATES,
    NO_DEPARTURES,
    REFUNDED_STARTS,
)


async def break_engine(connection: Connection, breakage: Breakage) -> None:
    # Triggers run as the owner of the schema.
    await connection.execute("create schema original; grant usage on schema original to public")
    await connection.execute(await connection.fetchval(_KEEP, breakage.function))
    await connection.execute(breakage.sql)
