-- Which pipelines changed, over all of them, and the snapshot that tells so: feed.sql says how. Readers who are up to date
-- share the cursor $1; others come with one of their own each, $2 (NULL: they have nothing). At most $3 pipelines a
-- reader: one more than that means too many.
-- Who has nothing gets the pipelines of the newest jobs and of those that run. The windows bound the work: a pipeline can
-- have any number of jobs, and the table any number of pipelines.
with here as materialized (
    select pg_current_snapshot() as snapshot, pg_snapshot_xmax(pg_current_snapshot()) as xmax,
        to_hex(hashtextextended(concat_ws(' ', (select system_identifier from pg_control_system()),
            (select oid from pg_database where datname = current_database()),
            case when not pg_is_in_recovery() then left(pg_walfile_name(pg_current_wal_lsn()), 8) end), 0)) as epoch
), reader as materialized (
    select 0::bigint as place, $1::pg_snapshot as cursor where $1::pg_snapshot is not null
    union all
    select r.place, r.cursor from unnest($2::pg_snapshot[]) with ordinality as r (cursor, place)
), newest as materialized (
    select n.pipeline_id
    from (select j.id, j.pipeline_id from reactor.jobs j where j.job_type is not null order by j.id desc limit 20000) n
    group by n.pipeline_id order by max(n.id) desc limit 100
), wanted as materialized (
    select r.place, f.pipeline_id
    from reader r cross join lateral (
        select distinct j.pipeline_id
        from reactor.jobs j
        where j.changed::text::bigint >= pg_snapshot_xmin(r.cursor)::text::bigint
            and not pg_visible_in_snapshot(j.changed, r.cursor) and j.changed < (select xmax from here)
            and j.job_type is not null
        limit $3::int + 1) f
    where r.cursor is not null
    union all
    select r.place, n.pipeline_id
    from reader r cross join (
        select w.pipeline_id from newest w
        union
        (select j.pipeline_id from reactor.jobs j where j.worker_id is not null and j.job_type is not null limit 400)) n
    where r.cursor is null
)
select -1::bigint as place, null::uuid as pipeline_id, 0 as rank, 0::bigint as id, h.epoch as name, null as body,
    h.snapshot
from here h
union all
select w.place, w.pipeline_id, 3, f.first_id, p.state,
    (select row_to_json(r)::text from (select p.*, f.first_id, f.job_type, f.scope) r), null
from wanted w
cross join lateral (select * from reactor.pipelines p where p.pipeline_id = w.pipeline_id offset 0) p
cross join lateral (
    select j.id as first_id, j.job_type, j.scope from reactor.jobs j
    where j.pipeline_id = w.pipeline_id and j.job_type is not null order by j.id limit 1) f
order by 1, 4
