-- The pipeline $1 with its jobs by id, at most $2, their dependencies and their steps: in one snapshot, and as JSON,
-- because the server writes ten thousand rows faster than the caller reads and rewrites them. Numbers, times and
-- lengths as in list_jobs.sql, `version` as in find_job.sql. json and not jsonb: no key is looked up in it, and it is
-- cheaper.
with clock as materialized (
    select clock_timestamp() as now
), jobs as materialized (
    select j.id, j.changed_xid, row_to_json(r) as body
    from clock n
    cross join (select * from reactor.jobs where pipeline_id = $1::uuid order by id limit $2::int) j
    cross join lateral reactor.durations(j.id, j.state, j.attempt_id, j.waiting_on, j.created_at, j.requeued_at,
        j.ready_at, j.run_after, j.locked_at, j.finished_at, n.now) d
    cross join lateral (
        select j.id, j.job_type, j.state, j.queue, j.priority, j.scope, j.is_current, j.exclusive, j.tags,
            j.pipeline_id, j.parent_id, j.children, j.attempts, coalesce(j.quota, j.max_attempts) as quota,
            j.waiting_on, j.locked_by, j.locked_at, j.progress, left(j.status_message, 2000) as status_message,
            left(j.error, 2000) as error,
            case when j.run_after is not null
                then least(j.run_after, timestamptz '9999-12-31 23:59:59.999999+00') end as run_after,
            j.created_at, j.started_at, j.finished_at, j.step_counts, d.value as durations,
            array(select d.depends_on from reactor.dependencies d where d.job_id = j.id order by d.depends_on)
                as depends_on) r
), steps as materialized (
    select s.job_id, s.position, s.name, s.changed_xid, row_to_json(r) as body
    from clock n
    cross join jobs j
    join reactor.steps s on s.job_id = j.id
    cross join lateral (
        select s.job_id, s.name, s.position, s.state, left(s.error, 2000) as error, s.attempts, s.max_attempts,
            s.run_after, s.started_at, s.finished_at,
            case when s.state = 'running'
                then coalesce(s.ran_seconds, 0) + date_part('epoch', n.now - s.started_at)
                else s.ran_seconds end as ran) r
)
select row_to_json(p)::text as pipeline,
    (select coalesce(json_agg(j.body order by j.id), '[]')::text from jobs j) as jobs,
    (select coalesce(json_agg(s.body order by s.job_id, s.position, s.name), '[]')::text from steps s) as steps,
    to_hex(hashtextextended(concat_ws(' ', row_to_json(p),
        (select string_agg(concat(j.id, ':', j.changed_xid), ' ' order by j.id) from jobs j),
        (select string_agg(concat(s.job_id, ':', s.changed_xid), ' ' order by s.job_id, s.position, s.name)
            from steps s)), 0)) as version
from reactor.pipelines p
where p.pipeline_id = $1::uuid
