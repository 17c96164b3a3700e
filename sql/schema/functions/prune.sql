-- Removes old pipelines, and archives them.

-- Creates the partition of the archive that holds one month, unless it exists.
create or replace function reactor.create_archive_partition(month timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    first timestamp := date_trunc('month', month at time zone 'UTC');
    partition text := 'archive_' || to_char(first, 'YYYY_MM');
begin
    if to_regclass('reactor.' || partition) is null then
        -- Of two transactions at the same time, the second waits and finds the partition.
        perform pg_advisory_xact_lock(hashtext('reactor.create_archive_partition'));
        execute format(
            'create table if not exists reactor.%I partition of reactor.archive for values from (%L) to (%L)',
            partition, first at time zone 'UTC', (first + interval '1 month') at time zone 'UTC');
    end if;
end
$$;

-- Reads the next `batch` jobs after the id `after_id`, and removes the pipelines among them whose jobs all ended in one
-- of these states more than `age_seconds` ago, are held by no worker and needed by no other pipeline. With
-- `keep_current` the current job of each scope is kept. Jobs are read by id, so that a caller that continues with `last_id` passes each job once, however many
-- are kept; last_id is NULL when nothing old is left. It waits for no lock: a pipeline with a locked row (during a
-- retry, for example) is left for the next time. With `archive` the pipelines are copied to reactor.archive first; with
-- `dry_run` they are only counted, each with its first job.
create or replace function reactor.prune(
    age_seconds float8, states text[], batch int, keep_current boolean, after_id bigint default 0,
    archive boolean default false, dry_run boolean default false, out pipelines int, out jobs int, out last_id bigint)
language plpgsql set search_path = pg_catalog, pg_temp
    -- However large the table is, the planner must not read all of it for one batch.
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    before timestamptz := clock_timestamp() - make_interval(secs => age_seconds);
    candidates uuid[];
    removed bigint[];
    any_old boolean;
begin
    select max(w.id), bool_or(w.created_at < before),
        array_agg(distinct w.pipeline_id) filter (where w.finished_at < before and w.state = any (states))
    into last_id, any_old, candidates
    from (select j.id, j.pipeline_id, j.created_at, j.finished_at, j.state from reactor.jobs j
        where j.id > after_id order by j.id limit batch) w;
    -- Ids grow with time: after a whole batch of recent jobs there are no old ones.
    if not any_old then
        last_id := null;
    end if;
    if dry_run then
        select count(*), coalesce(sum(w.size), 0) into pipelines, jobs from (
            select count(*) as size from reactor.jobs j where j.pipeline_id = any (candidates) group by j.pipeline_id
            having min(j.id) > after_id and bool_and(coalesce(j.finished_at < before and j.state = any (states)
                and j.worker_id is null and not (keep_current and j.is_current)
                and not reactor.is_needed(j.id), false))) w;
        return;
    end if;
    -- A locked row is read as it is now, with changes that committed since the statement began.
    with locked as materialized (
        select j.id, j.pipeline_id, coalesce(j.finished_at < before and j.state = any (states)
            and j.worker_id is null and not (keep_current and j.is_current)
            and not reactor.is_needed(j.id), false) as is_old
        from reactor.jobs j where j.pipeline_id = any (candidates) order by j.id for update skip locked
    ), whole as materialized (
        select l.pipeline_id, array_agg(l.id) as ids from locked l group by l.pipeline_id
        having bool_and(l.is_old)
            and count(*) = (select count(*) from reactor.jobs o where o.pipeline_id = l.pipeline_id)
    )
    select count(distinct w.pipeline_id), count(i.id), array_agg(i.id) into pipelines, jobs, removed
    from whole w cross join lateral unnest(w.ids) i (id);
    if pipelines = 0 then
        return;
    end if;
    if archive then
        perform reactor.create_archive_partition(m.month) from (
            select distinct date_trunc('month', j.finished_at, 'UTC') as month from reactor.jobs j
                where j.id = any (removed)) m;
        insert into reactor.archive (id, pipeline_id, job_type, state, finished_at, job, steps, attempts)
        select j.id, j.pipeline_id, j.job_type, j.state, j.finished_at, to_jsonb(j),
            (select jsonb_agg(to_jsonb(s) order by s.position) from reactor.steps s where s.job_id = j.id),
            (select jsonb_agg(to_jsonb(a) order by a.number) from reactor.attempts a where a.job_id = j.id)
        from reactor.jobs j where j.id = any (removed);
    end if;
    delete from reactor.jobs j where j.id = any (removed);
end
$$;
comment on function reactor.prune is
    'Removes old pipelines from one batch of jobs; '
    'returns the numbers of pipelines and jobs, and the id to continue from.';
