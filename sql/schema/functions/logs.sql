-- Stores what handlers log. A job must not wait for its log, nor fail because of it: nothing here waits for a lock of a
-- job, a lock of the table is waited for briefly, and an error is returned and not raised.

-- Inserts lines: those at place p belong to the job ids[p]. Only lines of the jobs `held` are inserted, whose rows the
-- caller has locked for these attempts. Returns the error, if they can't be stored.
--
-- `trimmed`: jobs of which this is the first write of a later attempt; the lines of their newest `kept_attempts`
-- attempts are kept, this one included. `maybe_done`: an earlier try of the same lines may have been committed.
create or replace function reactor.insert_logs(
    held bigint[], ids bigint[], attempt_ids uuid[], attempts int[], trimmed bigint[], kept_attempts int,
    maybe_done boolean, places int[], numbers int[], ages_seconds float8[], levels text[], steps text[],
    messages text[], fields jsonb[]) returns text
-- The planner expects a few elements of any array, and would compare each with each.
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off as $$
declare
    inserted_at timestamptz := clock_timestamp();
    before text := current_setting('lock_timeout');
    setting text;
    done int[];
    job bigint;
begin
    setting := set_config('lock_timeout', '100ms', true);
    if maybe_done then
        done := array(
            select (select max(l.number) from reactor.logs l where l.job_id = a.id and l.attempt_id = a.attempt_id)
            from unnest(ids, attempt_ids) with ordinality a (id, attempt_id, place) order by a.place);
    end if;
    foreach job in array coalesce(trimmed, '{}') loop
        if job = any (held) then
            delete from reactor.logs l where l.job_id = job and l.attempt_id <> all (array(
                select o.attempt_id from reactor.logs o
                where o.job_id = job and o.attempt_id <> attempt_ids[array_position(ids, job)]
                group by o.attempt_id order by max(o.id) desc limit kept_attempts - 1));
        end if;
    end loop;
    insert into reactor.logs (job_id, attempt_id, attempt, number, at, level, step, message, fields)
    select h.id, attempt_ids[l.place], attempts[l.place], l.number,
        inserted_at - make_interval(secs => greatest(l.age_seconds, 0)), l.level, l.step, l.message, l.fields
    from unnest(places, numbers, ages_seconds, levels, steps, messages, fields)
        as l (place, number, age_seconds, level, step, message, fields)
    join unnest(held) h (id) on h.id = ids[l.place]
    where l.number > coalesce(done[l.place], 0)
    order by l.place, l.number;
    setting := set_config('lock_timeout', before, true);
    return null;
exception when others then
    return sqlerrm;
end
$$;
comment on function reactor.insert_logs is 'Inserts lines of locked jobs; returns the error if they can''t be stored.';

-- Stores lines of running attempts. Jobs that are not among the `held` ones were locked by another transaction, or the
-- attempt was stale; of those nothing was stored.
create or replace function reactor.write_logs(
    ids bigint[], attempt_ids uuid[], attempts int[], trimmed bigint[], kept_attempts int, maybe_done boolean,
    places int[], numbers int[], ages_seconds float8[], levels text[], steps text[], messages text[], fields jsonb[],
    out held bigint[], out error text)
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set enable_hashjoin = off
    set jit = off as $$
declare
    -- Durable with the next commit that is, such as that of the job's end: these lines are worth no flush of their own.
    setting text := set_config('synchronous_commit', 'off', true);
begin
    held := array(
        select j.id from unnest(ids, attempt_ids) a (id, attempt_id)
        join reactor.jobs j on j.id = a.id and j.attempt_id = a.attempt_id and j.state = 'running'
        order by j.id for no key update of j skip locked);
    error := reactor.insert_logs(held, ids, attempt_ids, attempts, trimmed, kept_attempts, maybe_done, places, numbers,
        ages_seconds, levels, steps, messages, fields);
end
$$;
comment on function reactor.write_logs is 'Stores lines of running attempts; returns the jobs that they held.';

create or replace function reactor.remove_logs() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
begin
    if tg_op = 'TRUNCATE' then
        truncate reactor.logs;
    else
        delete from reactor.logs l using deleted d where l.job_id = d.id;
    end if;
    return null;
end
$$;
comment on function reactor.remove_logs is 'Removes the lines of jobs that were deleted.';
