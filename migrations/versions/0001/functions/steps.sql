-- Steps that a producer names when it submits a job, and the counts of a job's steps.
--
-- Counts are stored with the job, in `step_counts`, because lists and streams show them with every row. The attempt
-- that holds the job is the only writer of its steps, so it writes the counts together with each of them
-- (record_steps.sql); what happens without an attempt is counted here.

create or replace function reactor.count_steps(job_id bigint) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    return (
        select jsonb_build_object('total', count(*), 'pending', count(*) filter (where s.state = 'pending'),
            'running', count(*) filter (where s.state = 'running'),
            'completed', count(*) filter (where s.state = 'completed'),
            'failed', count(*) filter (where s.state = 'failed'),
            'skipped', count(*) filter (where s.state = 'skipped'),
            'current', (array_agg(s.name order by s.started_at desc) filter (where s.state = 'running'))[1])
        from reactor.steps s where s.job_id = count_steps.job_id having count(*) > 0);
end
$$;
comment on function reactor.count_steps is 'The step_counts of a job; NULL: it has no steps.';

-- Of jobs whose attempts have ended: a step that was running will run again, and a step that a job has not run, which
-- is completed or partial, is not part of its plan.
create or replace function reactor.end_steps(unfinished bigint[], finished bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
declare
    changed bigint[];
begin
    with ended as (
        update reactor.steps s set
            state = case when s.job_id = any (finished) then 'skipped' else 'pending' end,
            error = case when s.job_id = any (finished) then 'Not part of the plan.' else s.error end,
            finished_at = case when s.job_id = any (finished) then clock_timestamp() end,
            run_after = case when s.job_id = any (finished) then null else s.run_after end,
            changed_xid = txid_current()
        where s.job_id = any (unfinished) and s.state = 'running'
            or s.job_id = any (finished) and s.state in ('pending', 'running')
        returning s.job_id
    )
    select array_agg(distinct e.job_id) into changed from ended e;
    -- The counts that an attempt wrote last may be ahead of its steps: it counts a step as running before the start is
    -- written, which that of a short step never is.
    changed := changed || array(
        select j.id from reactor.jobs j
        where j.id = any (unfinished || finished)
            and (j.step_counts ->> 'running' <> '0' or j.id = any (finished) and j.step_counts ->> 'pending' <> '0'));
    if cardinality(changed) > 0 then
        update reactor.jobs j set step_counts = reactor.count_steps(j.id), changed_xid = txid_current()
        where j.id = any (changed);
    end if;
end
$$;
comment on function reactor.end_steps is 'Resets or skips the unfinished steps of jobs whose attempts have ended.';

create or replace function reactor.is_step_name(value text) returns boolean
language sql immutable
return octet_length(value) between 1 and 500 and value !~ '[[:cntrl:]]';

-- With the rights of the owner, because producers can't write steps.
create or replace function reactor.add_steps(job_id bigint, names text[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
declare
    wrong text;
    before int;
begin
    if coalesce(cardinality(names), 0) = 0 then
        return;
    end if;
    if array_ndims(names) > 1 or array_position(names, null) is not null then
        perform reactor.refuse('reactor: steps must be a plain array of texts', 'Give one dimension, without NULL.');
    end if;
    select n.name into wrong from unnest(names) n (name) where not reactor.is_step_name(n.name) limit 1;
    if found then
        perform reactor.refuse(format('reactor: %L is not a valid name of a step', left(wrong, 100)),
            'Use 1 to 500 bytes without control characters.');
    end if;
    perform from reactor.jobs j where j.id = add_steps.job_id and j.inserted_xid = txid_current();
    if not found then
        raise exception 'reactor: job % was not inserted by this transaction', job_id
            using errcode = 'object_not_in_prerequisite_state', hint = 'Name the steps together with the job.';
    end if;
    select count(*) into before from reactor.steps s where s.job_id = add_steps.job_id;
    if before + cardinality(names) > 100000 then
        raise exception 'reactor: a job can''t have % steps', before + cardinality(names)
            using errcode = 'program_limit_exceeded', hint = 'Use at most 100,000 steps, or several jobs.';
    end if;
    insert into reactor.steps (job_id, name, position, submitted)
    select add_steps.job_id, n.name, before + n.place - 1, true from unnest(names) with ordinality n (name, place)
    on conflict do nothing;
    if not (select count(*) = before + cardinality(names) from reactor.steps s where s.job_id = add_steps.job_id) then
        select n.name into wrong from unnest(names) n (name) group by n.name order by count(*) desc limit 1;
        perform reactor.refuse(format('reactor: the step %L is named twice', left(wrong, 100)),
            'Give each step of a job a name of its own.');
    end if;
    update reactor.jobs j set step_counts = reactor.count_steps(j.id), changed_xid = txid_current()
    where j.id = add_steps.job_id;
end
$$;
comment on function reactor.add_steps is
    'Names the steps of a job in the transaction that inserts it, before a worker plans them.';
