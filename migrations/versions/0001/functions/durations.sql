-- How long jobs waited, queued and ran. An attempt begins when the job exists, or when its previous attempt ended
-- (requeued_at). From then on it
--
--   waits    for its dependencies, its run_after or its backoff, until it is due (ready_at);
--   queues   for a slot, its scope, a limit or a paused queue, until it is claimed (locked_at);
--   runs     until it ends.
--
-- Attempts that left their job unfinished store these times in reactor.attempts; most jobs have none, and nothing but
-- their own row is read then. The time in which a job had ended, before an operator retried it, counts as nothing.

create or replace function reactor.began_at(created_at timestamptz, requeued_at timestamptz) returns timestamptz
language sql immutable parallel safe
return coalesce(requeued_at, created_at);

-- When an attempt became due: not before it began, although a clock may be set back.
create or replace function reactor.due_at(created_at timestamptz, requeued_at timestamptz, ready_at timestamptz)
    returns timestamptz
language sql immutable parallel safe
return greatest(coalesce(ready_at, requeued_at, created_at), requeued_at, created_at);

-- Of an attempt that was claimed, from the job's row.
create or replace function reactor.waited(job reactor.jobs) returns float8
language sql immutable parallel safe
return extract(epoch from
    least(reactor.due_at((job).created_at, (job).requeued_at, (job).ready_at), greatest((job).locked_at,
        reactor.began_at((job).created_at, (job).requeued_at)))
    - reactor.began_at((job).created_at, (job).requeued_at));

create or replace function reactor.queued(job reactor.jobs) returns float8
language sql immutable parallel safe
return extract(epoch from greatest(interval '0',
    (job).locked_at - reactor.due_at((job).created_at, (job).requeued_at, (job).ready_at)));

-- As JSON: the sums over all attempts, and the same of the latest one. Only a job that was pending again has others.
-- `at`: the time of reading, for jobs that have not ended. Concatenated, because json_build_object takes six times as
-- long. (The planner inlines a function in FROM that has no settings of its own, so this one names every schema.)
create or replace function reactor.durations(
    id bigint, state text, attempt_id uuid, waiting_on int, created_at timestamptz, requeued_at timestamptz,
    ready_at timestamptz, run_after timestamptz, locked_at timestamptz, finished_at timestamptz, at timestamptz)
    returns table (value json)
language sql stable
begin atomic
    select case when durations.requeued_at is null
        then ('{' || a.text || ',"attempt":{' || a.text || '}}')::json
        else (
            select pg_catalog.json_build_object(
                'waited', pg_catalog.round((a.waited + coalesce(h.waited, 0))::numeric, 6),
                'queued', pg_catalog.round((a.queued + coalesce(h.queued, 0))::numeric, 6),
                'ran', pg_catalog.round((a.ran + coalesce(h.ran, 0))::numeric, 6),
                'total', pg_catalog.round(
                    (a.total + coalesce(h.waited, 0) + coalesce(h.queued, 0) + coalesce(h.ran, 0))::numeric, 6),
                'attempt', ('{' || a.text || '}')::json)
            from (
                select sum(b.waited_seconds) as waited, sum(b.queued_seconds) as queued,
                    sum(pg_catalog.date_part('epoch', b.ended_at - b.started_at)) as ran
                from reactor.attempts b where b.job_id = durations.id) h)
        end
    from (
        select d.*, '"waited":' || d.waited || ',"queued":' || d.queued || ',"ran":' || d.ran || ',"total":' || d.total
            as text
        from (
            select pg_catalog.date_part('epoch', p.due_at - p.began_at) as waited,
                pg_catalog.date_part('epoch', p.claimed_at - p.due_at) as queued,
                pg_catalog.date_part('epoch', p.ended_at - p.claimed_at) as ran,
                pg_catalog.date_part('epoch', p.ended_at - p.began_at) as total
            from (
                select o.began_at, o.claimed_at, greatest(o.claimed_at, o.ended_at) as ended_at,
                    least(o.claimed_at,
                        case when durations.state = 'waiting' or durations.waiting_on > 0 then o.claimed_at
                        else reactor.due_at(durations.created_at, durations.requeued_at,
                            coalesce(durations.run_after, durations.ready_at)) end) as due_at
                from (
                    select e.began_at, e.ended_at,
                        greatest(e.began_at, case when durations.attempt_id is null then e.ended_at
                            else durations.locked_at end) as claimed_at
                    from (
                        select reactor.began_at(durations.created_at, durations.requeued_at) as began_at,
                            coalesce(durations.finished_at, durations.at) as ended_at) e) o) p) d offset 0) a;
end;
comment on function reactor.durations is 'How long a job has waited, queued and run, in seconds, as JSON.';
