-- Takes back the jobs of dead workers.

-- Its last heartbeat is recent, compared with the lease, of which the time between two heartbeats is at most half. So
-- the database was within reach until a moment ago, also if the worker has ended since.
create or replace function reactor.is_in_contact(heartbeat_at timestamptz, lease_until timestamptz) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
    select case when isfinite(lease_until)
        then heartbeat_at > clock_timestamp() - 0.6 * (lease_until - heartbeat_at) else false end
$$;
comment on function reactor.is_in_contact is 'Whether the last heartbeat of a worker is recent.';

-- How long a living worker may take to renew its lease after an outage: a heartbeat that the network swallowed is given
-- up after a sixth of the lease, and the next try follows within a second.
create or replace function reactor.return_time(heartbeat_at timestamptz, lease_until timestamptz) returns interval
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case when isfinite(lease_until) then (lease_until - heartbeat_at) / 3 else interval '0' end
$$;
comment on function reactor.return_time is 'How long to wait after an outage for a worker whose lease is over.';

-- Ends workers whose lease is over. A heartbeat that has not committed yet holds the row's lock, and is skipped.
--
-- `witnessed`: only if the database was within reach meanwhile. When it was down, or cut off, every lease may be over
-- although every worker is alive. So some worker must have been in contact for as long as a living one may take to
-- return. Without `witnessed` the caller has decided that they are dead. With `holder_of`: only the worker of that job.
create or replace function reactor.expire_workers(witnessed boolean default false, holder_of bigint default null)
returns void
language sql set search_path = pg_catalog, pg_temp as $$
    update reactor.workers w set ended_at = clock_timestamp()
    from (
        select d.id from reactor.workers d
        where d.ended_at is null and d.lease_until <= clock_timestamp()
            and (holder_of is null or d.id = (select j.worker_id from reactor.jobs j where j.id = holder_of))
            and (not witnessed or exists (
                select from reactor.workers v
                where reactor.is_in_contact(v.heartbeat_at, v.lease_until)
                    and v.contact_since <= clock_timestamp() - reactor.return_time(d.heartbeat_at, d.lease_until)))
        order by d.id for no key update skip locked) dead
    where w.id = dead.id
$$;
comment on function reactor.expire_workers is 'Ends the workers whose lease is over.';

-- Takes back at most `batch` jobs that ended workers hold: settle ends their attempts as lease_lost. Jobs whose
-- attempts ended before, by a cancel or a timeout, only release their scope. With `single`: only that job, as
-- recovered. `witnessed`: see expire_workers.
create or replace function reactor.sweep(batch int, single bigint default null, witnessed boolean default false)
returns table (id bigint, state text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    locked bigint[];
    running bigint[];
    attempt_ids uuid[];
    errors text[];
    stopped bigint[];
begin
    perform reactor.expire_workers(witnessed, single);
    -- A new statement, which sees the workers that just expired.
    locked := array(
        select j.id from reactor.jobs j
        where j.worker_id is not null and (single is null or j.id = single and j.state = 'running')
            and j.id = any (array(
                select unnest(c.job_ids) from reactor.claims c
                where not exists (select from reactor.workers w where w.id = c.worker_id and w.ended_at is null)))
            and not exists (select from reactor.workers w where w.id = j.worker_id and w.ended_at is null)
        order by j.id limit batch
        for no key update skip locked);
    -- And another one, which sees the jobs as they are now: a live worker may have claimed one before it was locked.
    -- (The statement above tests the new version of such a row, but not whether there is a worker for it.)
    select array_agg(d.id) filter (where d.is_running), array_agg(d.attempt_id) filter (where d.is_running),
        array_agg(format('The pod %s died or sent no heartbeat during attempt %s.', d.locked_by, d.attempts))
            filter (where d.is_running),
        array_agg(d.id) filter (where not d.is_running)
    into running, attempt_ids, errors, stopped
    from (
        select j.id, j.attempt_id, j.state = 'running' as is_running, j.locked_by, j.attempts
        from reactor.jobs j
        where j.id = any (locked) and j.worker_id is not null
            and not exists (select from reactor.workers w where w.id = j.worker_id and w.ended_at is null)
        order by j.id) d;
    if running is not null then
        return query select s.id, s.state from reactor.settle(
            running, attempt_ids,
            array_fill(case when single is null then 'lease_lost' else 'recovered' end, array[cardinality(running)]),
            null, errors, null, null, null, null) s;
    end if;
    if stopped is not null then
        return query update reactor.jobs j set worker_id = null, holds_scope = false, changed_xid = txid_current()
            where j.id = any (stopped) returning j.id, j.state;
    end if;
end
$$;
comment on function reactor.sweep is 'Takes back the jobs of dead workers; returns them with their new states.';
