-- The newest jobs with an id below $1 (NULL: from the newest on), at most $2, that have the state $3, type $4, queue $5,
-- scope $6, tag $7 and pipeline $8 (NULL: any). By id and not by offset: pages stay put while jobs arrive.
-- Filters that are NULL fold away: the server plans this for the values at hand, since its plan for all of them is always
-- dearer. The line on worker_id says nothing new; it lets running jobs be found by the index on it.
-- Long texts are cut, since a list has many; progress goes through numeric, or 0.1 would come out as 0.10000000149. Times
-- that no calendar of the readers has (infinity, the year 20000) come out as the last one that they have.
select j.id, j.job_type::text as job_type, j.state::text as state, j.queue::text as queue, j.priority::int as priority,
    j.scope::text as scope, j.is_current, j.exclusive, j.tags::text[] as tags, j.pipeline_id, j.parent_id, j.children,
    j.attempts, coalesce(j.quota, j.max_attempts::int) as quota, j.waiting_on, j.locked_by, j.locked_at,
    j.progress::numeric::float8 as progress, left(j.status_message, 2000) as status_message, left(j.error, 2000) as error,
    case when j.run_after is not null then least(j.run_after, timestamptz '9999-12-31 23:59:59.999999+00') end as run_after,
    j.created_at, j.started_at, j.finished_at,
    extract(epoch from clock_timestamp() - j.created_at)::float8 as age_seconds
from reactor.jobs j
where ($1::bigint is null or j.id < $1)
    and ($3::text is null or j.state = $3)
    and ($3::text is distinct from 'running' or j.worker_id is not null)
    and ($4::text is null or j.job_type = $4)
    and ($5::text is null or j.queue = $5)
    and ($6::text is null or j.scope = $6)
    and ($7::text is null or $7 = any (j.tags))
    and ($8::uuid is null or j.pipeline_id = $8)
order by j.id desc limit $2::int
