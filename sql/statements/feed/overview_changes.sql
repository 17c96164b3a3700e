-- The pipelines that changed, over all of them, and the snapshot in which they were read, as in pipeline_changes.sql.
--
-- Readers that are up to date share the cursor $1: they are `reader` 0. The others have a cursor of their own in $2
-- (NULL: they have nothing), none of them older than the transaction $4: they are numbered from 1. A reader gets at
-- most $3 pipelines: one more, or a row of the kind too_many, means that there are too many. A reader without a cursor
-- gets the pipelines of the newest jobs and of those that run.
--
-- The bounds of the cursors are parameters and not columns: only then does the planner know how little lies beyond
-- them, and use the BRIN index instead of walking all jobs. The windows bound the work, because a cursor can be of any
-- age, a pipeline can have any number of jobs, and the table any number of pipelines.
with now as materialized (
    select txid_current_snapshot() as snapshot, txid_snapshot_xmax(txid_current_snapshot()) as xmax,
        reactor.epoch() as epoch
), reader as materialized (
    select r.number, r.cursor from unnest($2::txid_snapshot[]) with ordinality as r (cursor, number)
), recent as materialized (
    select j.pipeline_id, j.changed_xid
    from reactor.jobs j
    where j.changed_xid >= $4::bigint and j.changed_xid < (select xmax from now) and j.job_type is not null
    limit 20001
), newest as materialized (
    select n.pipeline_id
    from (select j.id, j.pipeline_id from reactor.jobs j where j.job_type is not null order by j.id desc limit 20000) n
    group by n.pipeline_id order by max(n.id) desc limit 100
), changed_pipelines as materialized (
    (select distinct 0::bigint as reader, j.pipeline_id
    from reactor.jobs j
    where j.changed_xid >= txid_snapshot_xmin($1::txid_snapshot)
        and not txid_visible_in_snapshot(j.changed_xid, $1::txid_snapshot) and j.changed_xid < (select xmax from now)
        and j.job_type is not null
    limit $3::int + 1)
    union all
    select r.number, c.pipeline_id
    from reader r cross join lateral (
        select distinct l.pipeline_id from recent l
        where not txid_visible_in_snapshot(l.changed_xid, r.cursor)
        limit $3::int + 1) c
    where r.cursor is not null and (select count(*) from recent) <= 20000
    union all
    select r.number, n.pipeline_id
    from reader r cross join (
        select w.pipeline_id from newest w
        union
        (select j.pipeline_id from reactor.held_jobs j where j.job_type is not null limit 400)) n
    where r.cursor is null
)
select 'epoch' as kind, -1::bigint as reader, null::uuid as pipeline_id, null::bigint as id, null as name,
    null as state, null as body, null as depends_on, n.epoch, n.snapshot
from now n
union all
select 'pipeline', c.reader, c.pipeline_id, f.first_id, null, p.state,
    (select row_to_json(r)::text from (select p.*, f.first_id, f.job_type, f.scope) r), null, null, null
from changed_pipelines c
cross join lateral (select * from reactor.pipelines p where p.pipeline_id = c.pipeline_id offset 0) p
cross join lateral (
    select j.id as first_id, j.job_type, j.scope from reactor.jobs j
    where j.pipeline_id = c.pipeline_id and j.job_type is not null order by j.id limit 1) f
union all
select 'too_many', r.number, null, null, null, null, null, null, null, null
from reader r where r.cursor is not null and (select count(*) from recent) > 20000
order by reader, id
