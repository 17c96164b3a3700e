-- Rows from a dump of another server may carry transaction numbers that are still in the future on this one: readers of
-- changes would see them as new forever, or not at all. This marks them as changed now, at most $1 jobs and $1 steps at
-- a time. Returns the number of rows.
with jobs as (
    update reactor.jobs j set changed_xid = txid_current(), inserted_xid = txid_current()
    from (
        select f.id from reactor.jobs f
        where f.changed_xid >= txid_snapshot_xmax(txid_current_snapshot()) limit $1::int) future
    where j.id = future.id returning j.id
), steps as (
    update reactor.steps s set changed_xid = txid_current()
    from (
        select f.job_id, f.name from reactor.steps f
        where f.changed_xid >= txid_snapshot_xmax(txid_current_snapshot()) limit $1::int) future
    where s.job_id = future.job_id and s.name = future.name returning s.job_id
)
select (select count(*) from jobs) + (select count(*) from steps)
