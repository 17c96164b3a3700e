-- Rows from a dump of another server may have been changed by transactions that are yet to come on this one: to readers of
-- changes they would be new for ever, or not at all. They become changes of this moment, at most $1 jobs and as many steps
-- at once. Returns how many it was.
with jobs as (
    update reactor.jobs j set changed = pg_current_xact_id(), inserted_by = pg_current_xact_id()
    from (
        select f.id from reactor.jobs f
        where f.changed::text::bigint >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint limit $1::int) future
    where j.id = future.id returning j.id
), steps as (
    update reactor.steps s set changed = pg_current_xact_id()
    from (
        select f.job_id, f.name from reactor.steps f
        where f.changed::text::bigint >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint limit $1::int) future
    where s.job_id = future.job_id and s.name = future.name returning s.job_id
)
select (select count(*) from jobs) + (select count(*) from steps)
