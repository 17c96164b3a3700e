-- What changed in watched pipelines, and the snapshot that tells so: the next reader's cursor. In one statement, since
-- everything here must be of one snapshot.
-- Those who are up to date share the cursor $1 and watch the pipelines $2; others come with a pipeline $3 and a cursor $4
-- of their own each (NULL: they have nothing, and get everything).
-- A row is new to a reader if the transaction that changed it was not visible in the reader's snapshot: a late commit is
-- told once and only once, and nobody waits for it. The comparisons by number say nothing more; they let the BRIN indexes
-- on `changed` be used. Rows from a dump of another server can have been changed by transactions that are yet to come:
-- they count as old (`reactor migrate` puts them right).
-- (`offset 0` keeps the view from being worked out for all pipelines first.)
-- What a job depends on is `edges`, NULL if the reader has seen the job before: it never changes, and a fan-in has thousands.
with here as materialized (
    select pg_current_snapshot() as snapshot, pg_snapshot_xmax(pg_current_snapshot()) as xmax, reactor.epoch() as epoch
), reader as materialized (
    select r.place, r.pipeline_id, r.cursor
    from unnest($3::uuid[], $4::pg_snapshot[]) with ordinality as r (pipeline_id, cursor, place)
), fresh as materialized (
    select 0::bigint as place, j.id, j.pipeline_id, $1::pg_snapshot as cursor
    from reactor.jobs j
    where j.pipeline_id = any ($2::uuid[])
        and j.changed::text::bigint >= pg_snapshot_xmin($1::pg_snapshot)::text::bigint
        and not pg_visible_in_snapshot(j.changed, $1::pg_snapshot) and j.changed < (select xmax from here)
    union all
    select r.place, j.id, j.pipeline_id, r.cursor
    from reader r join reactor.jobs j on j.pipeline_id = r.pipeline_id
        and (r.cursor is null or not pg_visible_in_snapshot(j.changed, r.cursor) and j.changed < (select xmax from here))
), moved as materialized (
    select s.job_id, s.name from reactor.steps s
    where cardinality($2::uuid[]) > 0
        and s.changed::text::bigint >= pg_snapshot_xmin($1::pg_snapshot)::text::bigint
        and not pg_visible_in_snapshot(s.changed, $1::pg_snapshot) and s.changed < (select xmax from here)
), steps as (
    select 0::bigint as place, j.pipeline_id, m.job_id, m.name
    from moved m join reactor.jobs j on j.id = m.job_id and j.pipeline_id = any ($2::uuid[])
    union all
    select r.place, j.pipeline_id, s.job_id, s.name
    from reader r join reactor.jobs j on j.pipeline_id = r.pipeline_id join reactor.steps s on s.job_id = j.id
        and (r.cursor is null or not pg_visible_in_snapshot(s.changed, r.cursor) and s.changed < (select xmax from here))
)
select -1::bigint as place, null::uuid as pipeline_id, 0 as rank, 0::bigint as id, h.epoch as name, null as body,
    null as edges, h.snapshot
from here h
union all
select f.place, f.pipeline_id, 1, f.id, null, (
    select row_to_json(r)::text from (
        select j.id, j.job_type, j.state, j.queue, j.priority, j.scope, j.is_current, j.exclusive, j.tags, j.pipeline_id,
            j.parent_id, j.children, j.attempts, coalesce(j.quota, j.max_attempts::int) as quota, j.waiting_on, j.locked_by,
            j.locked_at, j.progress, left(j.status_message, 2000) as status_message, left(j.error, 2000) as error,
            case when j.run_after is not null then least(j.run_after, timestamptz '9999-12-31 23:59:59.999999+00') end as run_after,
            j.created_at, j.started_at, j.finished_at) r),
    case when f.cursor is null or not pg_visible_in_snapshot(j.inserted_by, f.cursor) then
        array_to_json(array(select d.depends_on from reactor.dependencies d where d.job_id = j.id order by 1))::text
    end, null
from fresh f join reactor.jobs j on j.id = f.id
union all
select n.place, n.pipeline_id, 2, n.job_id, n.name, (
    select row_to_json(r)::text
    from (select s.job_id, s.name, s.position, s.state, left(s.error, 2000) as error, s.started_at, s.finished_at) r), null, null
from steps n join reactor.steps s on s.job_id = n.job_id and s.name = n.name
union all
select w.place, w.pipeline_id, 3, 0, p.state, row_to_json(p)::text, null, null
from (select distinct place, pipeline_id from fresh union select place, pipeline_id from reader) w
cross join lateral (select * from reactor.pipelines p where p.pipeline_id = w.pipeline_id offset 0) p
order by 1, 2, 3, 4, 5
