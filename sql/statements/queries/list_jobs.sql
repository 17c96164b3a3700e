-- The newest jobs with an id below $1 (NULL: from the newest), at most $2, with the state $3, type $4, queue $5, scope
-- $6, tag $7, pipeline $8 and the facts $10 in their meta (NULL: any). By id and not by offset, so that pages are
-- stable while jobs arrive.
--
-- A page reads $9 jobs at most, so that no filter reads the whole table; if the page is not full, `next_before` is the
-- last job that it read. Filters with an index choose what is read, the others filter that. Only one of the branches is
-- ever read: conditions on parameters alone are checked once, before execution, so that a generic plan is as good as
-- any. A row without an id is not a job: it only carries `next_before`.
--
-- Long texts are cut, because a list has many of them. progress is cast through numeric, or 0.1 would come out as
-- 0.10000000149. Times outside the readers' calendars (infinity, the year 20000) come out as the last one inside.
with candidates as not materialized (
    (select j.* from reactor.jobs j
        where $8::uuid is not null
            and j.pipeline_id = $8 and j.id < coalesce($1, 9223372036854775807) order by j.id desc limit $9::int)
    union all
    (select j.* from reactor.jobs j
        where $8::uuid is null and $3::text = 'waiting'
            and j.phase = 'waiting' and j.id < coalesce($1, 9223372036854775807) order by j.id desc limit $9::int)
    union all
    (select j.* from reactor.held_jobs j
        where $8::uuid is null and $3::text = 'running'
            and j.id < coalesce($1, 9223372036854775807) order by j.id desc limit $9::int)
    union all
    (select j.* from reactor.jobs j
        where $8::uuid is null and $3::text in ('partial', 'failed')
            and j.phase = 'failed' and j.id < coalesce($1, 9223372036854775807) order by j.id desc limit $9::int)
    union all
    (select j.* from reactor.jobs j
        where $8::uuid is null and $3::text = 'cancelled'
            and j.phase = 'cancelled'
            and j.id < coalesce($1, 9223372036854775807) order by j.id desc limit $9::int)
    union all
    (select j.* from reactor.jobs j
        where $8::uuid is null and coalesce($3::text, 'pending') in ('pending', 'completed')
            and j.id < coalesce($1, 9223372036854775807) order by j.id desc limit $9::int)
), chosen as materialized (
    select j.id from candidates j
    where ($3::text is null or j.state = $3)
        and ($4::text is null or j.job_type = $4)
        and ($5::text is null or j.queue = $5)
        and ($6::text is null or j.scope = $6)
        and ($7::text is null or $7 = any (j.tags))
        and ($10::jsonb is null or j.meta @> $10)
    order by j.id desc
    limit $2::int
), page as materialized (
    select j.id, j.job_type, j.state, j.queue,
        j.priority, j.scope, j.is_current, j.exclusive, j.tags,
        j.pipeline_id, j.parent_id, j.children, j.attempts, coalesce(j.quota, j.max_attempts) as quota,
        j.waiting_on, j.locked_by, j.locked_at, j.progress::numeric::float8 as progress,
        left(j.status_message, 2000) as status_message, left(j.error, 2000) as error,
        case when j.run_after is not null
            then least(j.run_after, timestamptz '9999-12-31 23:59:59.999999+00') end as run_after,
        j.created_at, j.started_at, j.finished_at, j.step_counts, d.value as durations,
        extract(epoch from n.now - j.created_at)::float8 as age_seconds
    from (select clock_timestamp() as now) n
    cross join chosen c
    cross join lateral (select * from reactor.jobs j where j.id = c.id offset 0) j
    cross join lateral reactor.durations(j.id, j.state, j.attempt_id, j.waiting_on, j.created_at, j.requeued_at,
        j.ready_at, j.run_after, j.locked_at, j.finished_at, n.now) d
)
select page.*, o.next_before
from (
    select case when (select count(*) from chosen) < $2::int
        then (select j.id from candidates j order by j.id desc limit 1 offset $9::int - 1) end as next_before
) o
left join page on true
order by page.id desc
