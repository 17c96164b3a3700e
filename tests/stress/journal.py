"""A journal of every change of a job, written by a trigger of the test in the transaction of the change.

A job's entries are in the order of its changes: each was written under the lock of the job's row. A snapshot that shows
one of them shows all earlier ones. Entries of different jobs are ordered by time only.
"""

from typing import Any, NamedTuple
from uuid import UUID

from reactor.database.connection import Connection

_INSTALL = """
create schema stress;
create unlogged table stress.journal (
    seq bigint generated always as identity, at float8 not null default extract(epoch from clock_timestamp()),
    xid bigint not null default txid_current(), op text not null, id bigint not null, pipeline_id uuid, state text,
    attempt_id uuid, attempts int, quota int, max_attempts int, worker_id uuid, scope text, queue text, job_type text,
    priority int, parked boolean, is_due boolean, written_by text, lane text, counted boolean, started_once boolean,
    locked_at float8,
    began_at float8 not null default extract(epoch from transaction_timestamp()));
create unlogged table stress.edges (job_id bigint not null, depends_on bigint not null, needs text not null);

create function stress.record_job() returns trigger language plpgsql security definer as $$
begin
    if tg_op = 'DELETE' then
        insert into stress.journal (op, id) values ('D', old.id);
        return null;
    end if;
    insert into stress.journal (op, id, pipeline_id, state, attempt_id, attempts, quota, max_attempts, worker_id, scope,
        queue, job_type, priority, parked, is_due, written_by, lane, counted, started_once, locked_at)
    values (left(tg_op, 1), new.id, new.pipeline_id, new.state, new.attempt_id, new.attempts, new.quota,
        new.max_attempts, new.worker_id, new.scope, new.queue, new.job_type, new.priority, new.parked,
        new.run_after is null, new.result ->> 'attempt', new.lane, new.counted, new.started_once,
        extract(epoch from new.locked_at));
    if random() < nullif(current_setting('stress.jitter', true), '')::float8 then
        perform pg_sleep(random() * 0.01);
    end if;
    return null;
end
$$;
create trigger a_journal after insert or delete on reactor.jobs for each row execute function stress.record_job();
create trigger a_journal_of_updates after update on reactor.jobs for each row
    when ((old.state, old.attempt_id, old.attempts, old.worker_id, old.parked, old.counted, old.started_once,
            old.run_after is null)
        is distinct from
        (new.state, new.attempt_id, new.attempts, new.worker_id, new.parked, new.counted, new.started_once,
            new.run_after is null))
    execute function stress.record_job();

create function stress.record_edge() returns trigger language plpgsql security definer as $$
begin
    insert into stress.edges values (new.job_id, new.depends_on, new.needs);
    return null;
end
$$;
create trigger a_journal after insert on reactor.dependencies for each row execute function stress.record_edge();
"""

_TAKE = """
with taken as (delete from stress.journal returning *)
select seq, at, xid, op, id, pipeline_id, state, attempt_id, attempts, quota, max_attempts, worker_id, scope, queue,
    job_type, priority, parked, is_due, written_by, lane, counted, started_once, locked_at, began_at
from taken order by seq
"""
_TAKE_EDGES = "delete from stress.edges returning job_id, depends_on, needs"


class Entry(NamedTuple):
    """A job as it was after a change."""

    seq: int
    at: float
    """Seconds since 1970, by the database's clock, when it was written; it was committed later."""
    xid: int
    op: str
    """I, U or D. Of a deleted job only the id is known."""
    id: int
    pipeline_id: UUID
    state: str
    attempt_id: UUID | None
    attempts: int
    quota: int | None
    max_attempts: int | None
    worker_id: UUID | None
    scope: str | None
    queue: str
    job_type: str
    priority: int
    parked: bool
    is_due: bool
    written_by: str | None
    """The attempt that wrote the result: handlers of the test return their attempt_id."""
    lane: str | None
    counted: bool
    """It has a place in a limit."""
    started_once: bool
    """Its handler must not start again."""
    locked_at: float | None
    """When it was claimed last; like `at`, by the database's clock."""
    began_at: float
    """When the transaction of the change began."""

    def __str__(self) -> str:
        how = ", ".join(word for word, holds in (("parked", self.parked), ("later", not self.is_due)) if holds)
        return (
            f"[{self.state}{', ' if how else ''}{how}, {self.attempts}/{self.quota} attempts, "
            f"attempt {self.attempt_id}, worker {self.worker_id}, scope {self.scope}, "
            f"{self.queue}, {self.job_type}, lane {self.lane}, xid {self.xid}]"
        )


class Edge(NamedTuple):
    job_id: int
    depends_on: int
    needs: str


async def install(connection: Connection) -> None:
    await connection.execute(_INSTALL)


async def take(connection: Connection) -> tuple[list[Entry], list[Edge]]:
    """What was committed since the last time, in the caller's transaction."""
    entries: list[Any] = await connection.fetch(_TAKE)
    edges: list[Any] = await connection.fetch(_TAKE_EDGES)
    return [Entry(*entry) for entry in entries], [Edge(*edge) for edge in edges]
