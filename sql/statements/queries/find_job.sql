-- The job $1 with everything known about it, in one snapshot: its dependencies, its steps, and the attempts that did
-- not finish it. Lists are arrays of JSON texts: a driver has to look up any other type on each connection. Numbers and
-- times as in list_jobs.sql. `version` changes with the rows, and not with the time that passes, as durations do.
select j.id, j.job_type, j.state, j.payload, j.pipeline_id,
    j.parent_id, j.children, j.queue, j.priority,
    case when j.run_after is not null
        then least(j.run_after, timestamptz '9999-12-31 23:59:59.999999+00') end as run_after,
    j.max_attempts, j.timeout_seconds::numeric::float8 as timeout_seconds, j.tags,
    j.scope, j.exclusive, j.idempotency_key, j.lane, j.delivery, coalesce(j.meta, '{}') as meta,
    coalesce(j.submitted_by, j.created_by) as submitted_by, j.is_current, j.attempt_id,
    j.attempts, coalesce(j.quota, j.max_attempts) as quota, j.waiting_on, j.locked_by, j.worker_id, j.locked_at,
    j.progress::numeric::float8 as progress, j.status_message, j.result, j.error, j.broken_by, j.created_at,
    j.started_at, j.finished_at, j.step_counts, d.value as durations,
    array(select s::text from (
        select jsonb_build_object('depends_on', d.depends_on, 'needs', d.needs, 'state', p.state) as s
        from reactor.dependencies d join reactor.jobs p on p.id = d.depends_on
        where d.job_id = j.id order by d.depends_on) x) as dependencies,
    array(select s::text from (
        select to_jsonb(s) - '{job_id,changed_xid,ran_seconds,submitted}'::text[] || jsonb_build_object('ran',
            case when s.state = 'running' then coalesce(s.ran_seconds, 0) + date_part('epoch', n.now - s.started_at)
                else s.ran_seconds end) as s
        from reactor.steps s where s.job_id = j.id order by s.position, s.name) x) as steps,
    array(select s::text from (
        select to_jsonb(a) - '{job_id,waited_seconds,queued_seconds}'::text[] || jsonb_build_object('durations',
            jsonb_build_object('waited', a.waited_seconds, 'queued', a.queued_seconds, 'ran', r.seconds,
                'total', coalesce(a.waited_seconds, 0) + coalesce(a.queued_seconds, 0) + r.seconds)) as s
        from reactor.attempts a
        cross join lateral (select extract(epoch from a.ended_at - a.started_at)::float8 as seconds) r
        where a.job_id = j.id order by a.ended_at, a.number) x) as earlier_attempts,
    to_hex(hashtextextended(concat_ws(' ', j.changed_xid,
        (select string_agg(s.changed_xid::text, ' ' order by s.position, s.name)
            from reactor.steps s where s.job_id = j.id),
        (select string_agg(p.state, ' ' order by p.id)
            from reactor.dependencies d join reactor.jobs p on p.id = d.depends_on where d.job_id = j.id),
        (select count(*) from reactor.attempts a where a.job_id = j.id)), 0)) as version
from (select clock_timestamp() as now) n
cross join reactor.jobs j
cross join lateral reactor.durations(j.id, j.state, j.attempt_id, j.waiting_on, j.created_at, j.requeued_at, j.ready_at,
    j.run_after, j.locked_at, j.finished_at, n.now) d
where j.id = $1::bigint
