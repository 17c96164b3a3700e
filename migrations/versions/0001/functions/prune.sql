-- Removes old pipelines, and archives them. A transaction removes at most about `batch` jobs, so that it delays nobody.
--
-- A pipeline with more jobs than that is removed in several transactions. At each moment it is consistent: the pipeline
-- keeps its state, because the first job of each state goes last; jobs that didn't complete go before completed ones,
-- so that a job that can be retried still has what it depended on; and a job is deleted and archived in one
-- transaction. If a job is retried or inserted meanwhile, the rest stays.

-- Creates the partition of the archive that holds one month, unless it exists.
create or replace function reactor.create_archive_partition(month timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    first timestamp := date_trunc('month', month at time zone 'UTC');
    partition text := 'archive_' || to_char(first, 'YYYY_MM');
begin
    if to_regclass('reactor.' || partition) is null then
        -- Of two transactions at the same time, the second waits and finds the partition. (Not an advisory lock, which
        -- any role could hold.)
        lock table reactor.archive in share update exclusive mode;
        execute format(
            'create table if not exists reactor.%I partition of reactor.archive for values from (%L) to (%L)',
            partition, first at time zone 'UTC', (first + interval '1 month') at time zone 'UTC');
    end if;
end
$$;

-- Whether one job may be removed. Its pipeline may be, if this holds for all of its jobs.
create or replace function reactor.is_prunable(
    finished_at timestamptz, state text, worker_id uuid, is_current boolean,
    before timestamptz, states text[], keep_current boolean)
    returns boolean
language sql immutable
return coalesce(finished_at < before and state = any (states) and worker_id is null
    and not (keep_current and is_current), false);

-- The last job after this id that ended before this time, or NULL. Reads by the index of times, whatever the order of
-- ids; one scan for a whole run.
create or replace function reactor.last_ended(before timestamptz, after_id bigint) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_bitmapscan = on set jit = off as $$
begin
    -- Not by the primary key, from its end through all young jobs.
    return (select max(j.id + 0) from reactor.jobs j where j.finished_at < before and j.id + 0 > after_id);
end
$$;

-- Deletes jobs that their caller has locked.
create or replace function reactor.remove_jobs(ids bigint[], archive boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
begin
    if archive then
        perform reactor.create_archive_partition(m.month) from (
            select distinct date_trunc('month', j.finished_at, 'UTC') as month from reactor.jobs j
                where j.id = any (ids)) m;
        insert into reactor.archive (id, pipeline_id, job_type, state, finished_at, job, steps, attempts)
        select j.id, j.pipeline_id, j.job_type, j.state, j.finished_at, to_jsonb(j),
            (select jsonb_agg(to_jsonb(s) order by s.position) from reactor.steps s where s.job_id = j.id),
            (select jsonb_agg(to_jsonb(a) order by a.number) from reactor.attempts a where a.job_id = j.id)
        from reactor.jobs j where j.id = any (ids);
    end if;
    delete from reactor.jobs j where j.id = any (ids);
end
$$;

-- Removes some of these pipelines: those whose jobs can all be locked at once and may still be removed. It waits for no
-- lock: a pipeline with a locked row (during a retry, for example) is left for the next run.
create or replace function reactor.prune_whole(
    candidates uuid[], before timestamptz, states text[], keep_current boolean, archive boolean,
    out pipelines int, out jobs int)
language plpgsql set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    locked_ids bigint[];
    locked_pipelines uuid[];
    are_old boolean[];
    removed bigint[];
begin
    -- A locked row is read as it is now, with changes that committed since the statement began. (Sorted by an
    -- expression, or the planner might walk the primary key instead.)
    select array_agg(l.id), array_agg(l.pipeline_id), array_agg(l.is_old)
    into locked_ids, locked_pipelines, are_old
    from (
        select j.id, j.pipeline_id, reactor.is_prunable(j.finished_at, j.state, j.worker_id, j.is_current,
            before, states, keep_current) as is_old
        from reactor.jobs j where j.pipeline_id = any (candidates) order by j.id + 0 for update skip locked) l;
    -- A new statement, which sees the jobs that producers have added, or made dependent on these, before the locks.
    with whole as materialized (
        select l.pipeline_id, array_agg(l.id) as ids
        from unnest(locked_ids, locked_pipelines, are_old) l (id, pipeline_id, is_old)
        group by l.pipeline_id
        having bool_and(l.is_old) and not bool_or(reactor.is_needed(l.id))
            and count(*) = (select count(*) from reactor.jobs o where o.pipeline_id = l.pipeline_id)
    )
    select count(distinct w.pipeline_id), count(i.id), array_agg(i.id) into pipelines, jobs, removed
    from whole w cross join lateral unnest(w.ids) i (id);
    if pipelines > 0 then
        perform reactor.remove_jobs(removed, archive);
    end if;
end
$$;

-- Removes the next jobs of a large pipeline, the newest first. `place` is {"pipeline", "completed", "until", "keep"}:
-- whether it is the turn of completed jobs, the last id that was read, and the jobs that go last. NULL: done, or the
-- rest stays.
create or replace function reactor.prune_part(
    inout place jsonb, before timestamptz, states text[], batch int, keep_current boolean, archive boolean,
    out pipelines int, out jobs int)
language plpgsql set search_path = pg_catalog, pg_temp
    -- In the order of the index: sorting would read all that is left, for each part.
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
    set jit = off as $$
declare
    pipeline uuid := place ->> 'pipeline';
    kept bigint[] := array(select jsonb_array_elements_text(place -> 'keep')::bigint);
    found_ids bigint[];
    ids bigint[];
    old_ids bigint[];
    removed bigint[];
begin
    pipelines := 0;
    jobs := 0;
    -- Those that go last stand for the whole: while they are locked, none of them can be retried.
    select array_agg(l.id) filter (where l.is_old) into old_ids from (
        select j.id, reactor.is_prunable(j.finished_at, j.state, j.worker_id, j.is_current, before, states,
            keep_current) as is_old
        from reactor.jobs j where j.id = any (kept) order by j.id for update skip locked) l;
    if cardinality(old_ids) is distinct from cardinality(kept) then
        place := null;
        return;
    end if;
    found_ids := array(
        select j.id from reactor.jobs j
        -- A comparison of rows can only use the index of pipelines.
        where (j.pipeline_id, j.id) < (pipeline, (place ->> 'until')::bigint)
            and (j.pipeline_id, j.id) >= (pipeline, 0)
            and (j.state = 'completed') = (place -> 'completed')::boolean and j.id <> all (kept)
        order by j.pipeline_id desc, j.id desc limit batch);
    select array_agg(l.id), array_agg(l.id) filter (where l.is_old) into ids, old_ids from (
        select j.id, reactor.is_prunable(j.finished_at, j.state, j.worker_id, j.is_current, before, states,
            keep_current) as is_old
        from reactor.jobs j where j.id = any (found_ids) order by j.id for update skip locked) l;
    -- Dependants are usually newer, and gone by now. A job stays until the end if one that stays needs it.
    with recursive needed (id) as (
        select d.depends_on from reactor.dependencies d
        where d.depends_on = any (old_ids) and not d.resolved and d.job_id <> all (old_ids)
        union
        select d.depends_on from needed n join reactor.dependencies d on d.job_id = n.id
        where d.depends_on = any (old_ids) and not d.resolved
    )
    select array_agg(o.id) into removed from unnest(old_ids) o (id) where o.id not in (select n.id from needed n);
    if cardinality(removed) > 0 then
        perform reactor.remove_jobs(removed, archive);
        jobs := cardinality(removed);
    end if;
    if coalesce(cardinality(old_ids), 0) < cardinality(found_ids) then
        place := null;
    elsif cardinality(found_ids) = batch then
        place := place || jsonb_build_object('until', found_ids[batch]);
    elsif not (place -> 'completed')::boolean then
        place := place || '{"completed": true, "until": 9223372036854775807}';
    else
        place := null;
        select w.pipelines, prune_part.jobs + w.jobs into pipelines, jobs
        from reactor.prune_whole(array[pipeline], before, states, keep_current, archive) w;
    end if;
end
$$;

-- Reads the next `batch` jobs, and removes the pipelines that begin among them and whose jobs all ended in one of these
-- states more than `age_seconds` ago, are held by no worker and needed by no other pipeline. With `keep_current` the
-- current job of each scope is kept. A caller continues with the returned `place` until that is NULL. Jobs are read by
-- id, and a pipeline is judged once, at its first job and before anything is locked: so the cost of a run is linear,
-- whatever is kept. With `archive` the pipelines are copied to reactor.archive first; with `dry_run` they are only
-- counted.
--
-- `place` is {"after", "until", "large"}: the last id that was read; the last id that is worth reading, once it was
-- needed; and the place in a large pipeline.
create or replace function reactor.prune(
    age_seconds float8, states text[], batch int, keep_current boolean, inout place jsonb default '{}',
    archive boolean default false, dry_run boolean default false, out pipelines int, out jobs int)
language plpgsql set search_path = pg_catalog, pg_temp
    -- However large the table is, the planner must not read all of it for one batch.
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
    set jit = off as $$
declare
    before timestamptz := clock_timestamp() - make_interval(secs => age_seconds);
    after_id bigint := coalesce((place ->> 'after')::bigint, 0);
    until_id bigint := (place ->> 'until')::bigint;
    last_id bigint;
    any_old boolean;
    large jsonb := place -> 'large';
    candidate record;
    size int;
    is_old boolean;
    first_of_state jsonb;
    chosen uuid[] := '{}';
begin
    if large is not null then
        select p.place, p.pipelines, p.jobs into large, pipelines, jobs
        from reactor.prune_part(large, before, states, batch, keep_current, archive) p;
        place := case when large is null then place - 'large' else place || jsonb_build_object('large', large) end;
        return;
    end if;
    pipelines := 0;
    jobs := 0;
    select max(w.id), bool_or(least(w.created_at, w.finished_at) < before) into last_id, any_old
    from (select j.id, j.created_at, j.finished_at from reactor.jobs j
        where j.id > after_id order by j.id limit batch) w;
    for candidate in
        select w.id, w.pipeline_id from reactor.jobs w
        where w.id > after_id and w.id <= last_id and reactor.is_prunable(w.finished_at, w.state, w.worker_id,
            w.is_current, before, states, keep_current)
            -- By the index of pipelines, from their first jobs on, and not by the primary key.
            and not exists (select from reactor.jobs o where o.pipeline_id = w.pipeline_id and o.id + 0 < w.id)
        order by w.id
    loop
        select count(*), bool_and(reactor.is_prunable(j.finished_at, j.state, j.worker_id, j.is_current, before,
                states, keep_current)
            and not reactor.is_needed(j.id))
        into size, is_old
        from reactor.jobs j where j.pipeline_id = candidate.pipeline_id;
        continue when not is_old;
        if dry_run then
            pipelines := pipelines + 1;
            jobs := jobs + size;
        elsif jobs + size <= batch then
            chosen := chosen || candidate.pipeline_id;
            jobs := jobs + size;
        else
            last_id := candidate.id - 1;
            if jobs = 0 then
                last_id := candidate.id;
                select jsonb_agg(f.id) into first_of_state from (
                    select min(j.id) as id from reactor.jobs j
                    where j.pipeline_id = candidate.pipeline_id
                    group by j.state, j.job_type is null) f;
                large := jsonb_build_object(
                    'pipeline', candidate.pipeline_id, 'completed', false, 'until', 9223372036854775807,
                    'keep', first_of_state);
            end if;
            exit;
        end if;
    end loop;
    if cardinality(chosen) > 0 then
        select w.pipelines, w.jobs into pipelines, jobs
        from reactor.prune_whole(chosen, before, states, keep_current, archive) w;
    end if;
    -- Ids grow with time, except where the owner wrote them or the clock was set: after a whole batch of recent jobs
    -- there are rarely old ones.
    if not any_old and until_id is null then
        until_id := coalesce(reactor.last_ended(before, last_id), 0);
    end if;
    if last_id is null or until_id <= last_id and not any_old then
        place := null;
    else
        place := jsonb_strip_nulls(jsonb_build_object('after', last_id, 'until', until_id, 'large', large));
    end if;
end
$$;
comment on function reactor.prune is
    'Removes old pipelines that begin in one batch of jobs; '
    'returns the numbers of pipelines and jobs, and the place to continue from.';
