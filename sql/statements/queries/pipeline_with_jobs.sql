-- The pipeline $1 with its jobs by id, at most $2, their dependencies and their steps: in one snapshot, and as JSON,
-- because the server writes ten thousand rows faster than the caller reads and rewrites them. Numbers, times and
-- lengths as in list_jobs.sql. json and not jsonb: no key is looked up in it, and it is cheaper.
with jobs as materialized (
    select j.id, j.job_type, j.state, j.queue, j.priority, j.scope, j.is_current, j.exclusive, j.tags, j.pipeline_id,
        j.parent_id, j.children, j.attempts, coalesce(j.quota, j.max_attempts) as quota, j.waiting_on, j.locked_by,
        j.locked_at, j.progress, left(j.status_message, 2000) as status_message, left(j.error, 2000) as error,
        case when j.run_after is not null
            then least(j.run_after, timestamptz '9999-12-31 23:59:59.999999+00') end as run_after,
        j.created_at, j.started_at,
        j.finished_at,
        array(select d.depends_on from reactor.dependencies d where d.job_id = j.id order by d.depends_on) as depends_on
    from reactor.jobs j
    where j.pipeline_id = $1::uuid
    order by j.id limit $2::int
)
select row_to_json(p)::text as pipeline,
    (select coalesce(json_agg(j order by j.id), '[]')::text from jobs j) as jobs,
    (select coalesce(json_agg(s order by s.job_id, s.position, s.name), '[]')::text from (
        select s.job_id, s.name, s.position, s.state, left(s.error, 2000) as error, s.started_at, s.finished_at
        from jobs j join reactor.steps s on s.job_id = j.id) s) as steps
from reactor.pipelines p
where p.pipeline_id = $1::uuid
