-- The newest pipelines whose first job has an id below $1 (NULL: from the newest), at most $2, with the derived state
-- $3, and whose first job has the type $4, the scope $5 and the tag $6 (NULL: any), or contains $7 in its type or scope
-- or at the beginning of its pipeline id. $8 or $9: only that pipeline, or the pipeline of that job.
--
-- There is no table of pipelines: the statement walks jobs by descending id and takes the first job of each pipeline. A
-- page walks 20,000 ids at most, so that no filter reads the whole table; if the page is not full, the next one
-- continues at `next_before`: just above the next existing job, because prunes leave wide gaps. Rows without a type
-- belong to no pipeline.
--
-- Scalar subqueries instead of joins: the planner then walks the primary key, keeps its order, and stops when the page
-- is full. `offset 0` keeps it from deriving the state of all pipelines before joining them.
with top as materialized (
    select case when $8::uuid is null and $9::bigint is null
        then (select max(j.id) from reactor.jobs j where j.id < coalesce($1::bigint, 9223372036854775807))
        else (select j.id from reactor.jobs j
            where j.pipeline_id = coalesce($8::uuid, (select o.pipeline_id from reactor.jobs o where o.id = $9::bigint))
                and j.job_type is not null
            order by j.id limit 1) end as id
), bottom as materialized (
    select case when $8::uuid is null and $9::bigint is null then top.id - 20000 else top.id - 1 end as id from top
), page as materialized (
    select h.id as first_id, h.job_type, h.scope, p.pipeline_id, p.state,
        p.progress::numeric::float8 as progress, p.jobs, p.waiting, p.pending, p.running, p.completed, p.partial,
        p.failed, p.cancelled, p.created_at, p.started_at, p.finished_at
    from (
        select j.id, j.pipeline_id, j.job_type, j.scope
        from reactor.jobs j
        where j.id <= (select top.id from top) and j.id > (select bottom.id from bottom) and j.job_type is not null
            and ($4::text is null or j.job_type = $4)
            and ($5::text is null or j.scope = $5)
            and ($6::text is null or $6 = any (j.tags))
            and ($7::text is null or starts_with(j.pipeline_id::text, lower($7))
                or position(lower($7) in lower(j.job_type)) > 0 or position(lower($7) in lower(j.scope)) > 0)
            and j.id = (select e.id from reactor.jobs e
                where e.pipeline_id = j.pipeline_id and e.job_type is not null order by e.id limit 1)
        order by j.id desc
        limit 20000
    ) h
    cross join lateral (select p.* from reactor.pipelines p where p.pipeline_id = h.pipeline_id offset 0) p
    where $3::text is null or p.state = $3
    order by h.id desc
    limit $2::int
)
select page.*, o.next_before
from (
    select case when $8::uuid is null and $9::bigint is null then (
        select max(j.id) + 1 from reactor.jobs j where j.id <= (select bottom.id from bottom)) end as next_before
) o
left join page on true
order by page.first_id desc
