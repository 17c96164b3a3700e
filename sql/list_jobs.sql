-- The newest jobs with an id below $1 (NULL: from the newest on), at most $2, that have the state $3, type $4, queue $5,
-- scope $6, tag $7 and pipeline $8 (NULL: any). By id and not by offset: pages stay put while jobs arrive.
--
-- One page looks at $9 jobs at most, so that no filter reads the whole table; `next_before` is the last of them when the page is
-- not full. Filters with an index choose what is looked at, the others choose among those. Of the branches only one is ever
-- read: the conditions on parameters alone are checked once, before, so a plan for all values is as good as any.
-- A row without an id is no job: there was none to tell `next_before` with.
--
-- Long texts are cut, since a list has many; progress goes through numeric, or 0.1 would come out as 0.10000000149. Times
-- that no calendar of the readers has (infinity, the year 20000) come out as the last one that they have.
with looked_at as not materialized (
    (select j.* from reactor.jobs j
        where $8::uuid is not null
            and j.pipeline_id = $8 and j.id < coalesce($1, 9223372036854775807) order by j.id desc limit $9::int)
    union all
    (select j.* from reactor.jobs j
        where $8::uuid is null and $3::text = 'waiting'
            and j.state = 'waiting' and j.id < coalesce($1, 9223372036854775807) order by j.id desc limit $9::int)
    union all
    (select j.* from reactor.jobs j
        where $8::uuid is null and $3::text = 'running'
            and j.worker_id is not null and j.id < coalesce($1, 9223372036854775807) order by j.id desc limit $9::int)
    union all
    (select j.* from reactor.jobs j
        where $8::uuid is null and $3::text in ('partial', 'failed', 'cancelled')
            and j.state in ('partial', 'failed', 'cancelled')
            and j.id < coalesce($1, 9223372036854775807) order by j.id desc limit $9::int)
    union all
    (select j.* from reactor.jobs j
        where $8::uuid is null and coalesce($3::text, 'pending') in ('pending', 'completed')
            and j.id < coalesce($1, 9223372036854775807) order by j.id desc limit $9::int)
), page as materialized (
    select j.id, j.job_type::text as job_type, j.state::text as state, j.queue::text as queue, j.priority::int as priority,
        j.scope::text as scope, j.is_current, j.exclusive, j.tags::text[] as tags, j.pipeline_id, j.parent_id, j.children,
        j.attempts, coalesce(j.quota, j.max_attempts::int) as quota, j.waiting_on, j.locked_by, j.locked_at,
        j.progress::numeric::float8 as progress, left(j.status_message, 2000) as status_message,
        left(j.error, 2000) as error,
        case when j.run_after is not null then least(j.run_after, timestamptz '9999-12-31 23:59:59.999999+00') end as run_after,
        j.created_at, j.started_at, j.finished_at,
        extract(epoch from clock_timestamp() - j.created_at)::float8 as age_seconds
    from looked_at j
    where ($3::text is null or j.state = $3)
        and ($4::text is null or j.job_type = $4)
        and ($5::text is null or j.queue = $5)
        and ($6::text is null or j.scope = $6)
        and ($7::text is null or $7 = any (j.tags))
    order by j.id desc
    limit $2::int
)
select page.*, o.next_before
from (
    select case when (select count(*) from page) < $2::int
        then (select j.id from looked_at j order by j.id desc limit 1 offset $9::int - 1) end as next_before
) o
left join page on true
order by page.id desc
