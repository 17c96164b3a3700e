-- Makes the part of the archive that holds one month, if it is not there.
create function reactor.open_archive(month timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    first timestamp := date_trunc('month', month at time zone 'UTC');
    part text := 'archive_' || to_char(first, 'YYYY_MM');
begin
    if to_regclass('reactor.' || part) is null then
        -- Two at once: the second waits, and finds it made.
        perform pg_advisory_xact_lock(hashtext('reactor.open_archive'));
        execute format('create table if not exists reactor.%I partition of reactor.archive for values from (%L) to (%L)',
            part, first at time zone 'UTC', (first + interval '1 month') at time zone 'UTC');
    end if;
end
$$;

-- Looks through the next `batch` jobs after the id `after_id`, and removes the whole pipelines among them whose jobs all ended, in
-- one of these states, more than `age_seconds` ago, and that no handler is still busy with. The newest run of each scope
-- stays if `keep_current`. In the order of ids, so that whoever calls this again with `last_id` passes each job once, however
-- many are kept; last_id is NULL when nothing old is left. Nobody is waited for: a pipeline of which somebody has a row
-- locked (it is being retried, say) stays for the next time. With `archive` they are copied to reactor.archive first; with
-- `dry_run` they are only counted, each with its first job.
create function reactor.prune(
    age_seconds float8, states text[], batch int, keep_current boolean, after_id bigint default 0, archive boolean default false,
    dry_run boolean default false, out pipelines int, out jobs int, out last_id bigint)
language plpgsql set search_path = pg_catalog, pg_temp
    -- The table's size must not talk the planner into reading all of it for one batch.
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    before timestamptz := clock_timestamp() - make_interval(secs => age_seconds);
    old uuid[];
    gone bigint[];
    any_old boolean;
begin
    select max(w.id), bool_or(w.created_at < before),
        array_agg(distinct w.pipeline_id) filter (where w.finished_at < before and w.state = any (states))
    into last_id, any_old, old
    from (select j.id, j.pipeline_id, j.created_at, j.finished_at, j.state from reactor.jobs j
        where j.id > after_id order by j.id limit batch) w;
    -- Ids grow with the time: after a whole batch of young ones there are no old ones.
    if not any_old then
        last_id := null;
    end if;
    if dry_run then
        select count(*), coalesce(sum(w.size), 0) into pipelines, jobs from (
            select count(*) as size from reactor.jobs j where j.pipeline_id = any (old) group by j.pipeline_id
            having min(j.id) > after_id and bool_and(coalesce(j.finished_at < before and j.state = any (states)
                and j.worker_id is null and not (keep_current and j.is_current), false))) w;
        return;
    end if;
    -- A locked row is read as it is then, whoever changed it since the statement began.
    with mine as materialized (
        select j.id, j.pipeline_id, coalesce(j.finished_at < before and j.state = any (states)
            and j.worker_id is null and not (keep_current and j.is_current), false) as is_old
        from reactor.jobs j where j.pipeline_id = any (old) order by j.id for update skip locked
    ), whole as materialized (
        select m.pipeline_id, array_agg(m.id) as ids from mine m group by m.pipeline_id
        having bool_and(m.is_old) and count(*) = (select count(*) from reactor.jobs o where o.pipeline_id = m.pipeline_id)
    )
    select count(distinct w.pipeline_id), count(i.id), array_agg(i.id) into pipelines, jobs, gone
    from whole w cross join lateral unnest(w.ids) i (id);
    if pipelines = 0 then
        return;
    end if;
    if archive then
        perform reactor.open_archive(m.month) from (
            select distinct date_trunc('month', j.finished_at, 'UTC') as month from reactor.jobs j where j.id = any (gone)) m;
        insert into reactor.archive (id, pipeline_id, job_type, state, finished_at, job, steps, attempts)
        select j.id, j.pipeline_id, j.job_type, j.state, j.finished_at, to_jsonb(j),
            (select jsonb_agg(to_jsonb(s) order by s.position) from reactor.steps s where s.job_id = j.id),
            (select jsonb_agg(to_jsonb(a) order by a.number) from reactor.attempts a where a.job_id = j.id)
        from reactor.jobs j where j.id = any (gone);
    end if;
    delete from reactor.jobs j where j.id = any (gone);
end
$$;
comment on function reactor.prune is
    'Removes whole pipelines that ended long ago, from one batch of jobs; returns how many, how many jobs, and where to go on.';
