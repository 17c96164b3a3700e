-- Removes up to $3 whole pipelines whose jobs all ended, in one of the states $2, more than $1 seconds ago. The newest run
-- of each scope stays if $4. Steps, attempts and dependencies go with their jobs.
with old as materialized (
    select distinct j.pipeline_id from reactor.jobs j
    where j.finished_at < (select clock_timestamp()) - make_interval(secs => $1::float8) and j.state = any ($2::text[])
        and not exists (
            select from reactor.jobs o
            where o.pipeline_id = j.pipeline_id and (
                o.finished_at is null or o.state <> all ($2::text[])
                or o.finished_at >= (select clock_timestamp()) - make_interval(secs => $1::float8)
                or $4::boolean and o.is_current))
    limit $3::int
), gone as (
    delete from reactor.jobs j using old where j.pipeline_id = old.pipeline_id returning j.id
)
select (select count(*) from old)::int as pipelines, (select count(*) from gone)::int as jobs
