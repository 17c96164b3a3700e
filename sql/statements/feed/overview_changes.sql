-- Which pipelines changed, over all of them, and the snapshot that tells so: feed.sql says how. Readers who are up to date
-- share the cursor $1; others come with one of their own each, $2 (NULL: they have nothing), none of them older than the
-- transaction $4. At most $3 pipelines a reader: one more than that, or a row of rank 4, means too many.
-- The cursors' bounds are parameters and not columns: only then does the planner know how little lies beyond them, and use
-- the BRIN index instead of walking through all jobs. A cursor can be of any age: `lately` ends before it has read much.
-- Who has nothing gets the pipelines of the newest jobs and of those that run. The windows bound the work: a pipeline can
-- have any number of jobs, and the table any number of pipelines.
with here as materialized (
    select pg_current_snapshot() as snapshot, pg_snapshot_xmax(pg_current_snapshot()) as xmax, reactor.epoch() as epoch
), reader as materialized (
    select r.place, r.cursor from unnest($2::pg_snapshot[]) with ordinality as r (cursor, place)
), lately as materialized (
    select j.pipeline_id, j.changed
    from reactor.jobs j
    where j.changed::text::bigint >= $4::bigint and j.changed < (select xmax from here) and j.job_type is not null
    limit 20001
), newest as materialized (
    select n.pipeline_id
    from (select j.id, j.pipeline_id from reactor.jobs j where j.job_type is not null order by j.id desc limit 20000) n
    group by n.pipeline_id order by max(n.id) desc limit 100
), wanted as materialized (
    (select distinct 0::bigint as place, j.pipeline_id
    from reactor.jobs j
    where j.changed::text::bigint >= pg_snapshot_xmin($1::pg_snapshot)::text::bigint
        and not pg_visible_in_snapshot(j.changed, $1::pg_snapshot) and j.changed < (select xmax from here)
        and j.job_type is not null
    limit $3::int + 1)
    union all
    select r.place, f.pipeline_id
    from reader r cross join lateral (
        select distinct l.pipeline_id from lately l
        where not pg_visible_in_snapshot(l.changed, r.cursor)
        limit $3::int + 1) f
    where r.cursor is not null and (select count(*) from lately) <= 20000
    union all
    select r.place, n.pipeline_id
    from reader r cross join (
        select w.pipeline_id from newest w
        union
        (select j.pipeline_id from reactor.jobs j where j.worker_id is not null and j.job_type is not null limit 400)) n
    where r.cursor is null
)
select -1::bigint as place, null::uuid as pipeline_id, 0 as rank, 0::bigint as id, h.epoch as name, null as body,
    null as edges, h.snapshot
from here h
union all
select w.place, w.pipeline_id, 3, f.first_id, p.state,
    (select row_to_json(r)::text from (select p.*, f.first_id, f.job_type, f.scope) r), null, null
from wanted w
cross join lateral (select * from reactor.pipelines p where p.pipeline_id = w.pipeline_id offset 0) p
cross join lateral (
    select j.id as first_id, j.job_type, j.scope from reactor.jobs j
    where j.pipeline_id = w.pipeline_id and j.job_type is not null order by j.id limit 1) f
union all
select r.place, null, 4, 0, null, null, null, null
from reader r where r.cursor is not null and (select count(*) from lately) > 20000
order by 1, 4
