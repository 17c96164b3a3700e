-- The rows of watched pipelines that changed, and the snapshot in which they were read: the cursor of the next query.
-- One statement, because everything must come from one snapshot.
--
-- Readers that are up to date share the cursor $1 and watch the pipelines $2: they are `reader` 0. The others have a
-- pipeline in $3 and a cursor of their own in $4 (NULL: they have nothing, and get everything): they are numbered from
-- 1. The first row, of the kind epoch, has the snapshot and reactor.epoch(); the others are a job, a step or a
-- pipeline.
--
-- A row is new to a reader if the transaction that changed it was not visible in the reader's snapshot. So a late
-- commit is reported exactly once, and no reader waits for it. The comparisons of transaction numbers add nothing to
-- that; they let the BRIN indexes on `changed_xid` be used. Rows from a dump of another server may carry numbers that
-- are still in the future: they count as old until `reactor migrate` repairs them.
--
-- `depends_on` is NULL if the reader has seen the job before: it never changes, and a fan-in has thousands. (`offset 0`
-- keeps the planner from deriving the state of all pipelines first.)
with now as materialized (
    select txid_current_snapshot() as snapshot, txid_snapshot_xmax(txid_current_snapshot()) as xmax,
        reactor.epoch() as epoch, clock_timestamp() as at
), reader as materialized (
    select r.number, r.pipeline_id, r.cursor
    from unnest($3::uuid[], $4::txid_snapshot[]) with ordinality as r (pipeline_id, cursor, number)
), changed_jobs as materialized (
    select 0::bigint as reader, j.id, j.pipeline_id, $1::txid_snapshot as cursor
    from reactor.jobs j
    where j.pipeline_id = any ($2::uuid[])
        and j.changed_xid >= txid_snapshot_xmin($1::txid_snapshot)
        and not txid_visible_in_snapshot(j.changed_xid, $1::txid_snapshot) and j.changed_xid < (select xmax from now)
    union all
    select r.number, j.id, j.pipeline_id, r.cursor
    from reader r join reactor.jobs j on j.pipeline_id = r.pipeline_id
        and (r.cursor is null
            or not txid_visible_in_snapshot(j.changed_xid, r.cursor) and j.changed_xid < (select xmax from now))
), recent_steps as materialized (
    select s.job_id, s.name from reactor.steps s
    where cardinality($2::uuid[]) > 0
        and s.changed_xid >= txid_snapshot_xmin($1::txid_snapshot)
        and not txid_visible_in_snapshot(s.changed_xid, $1::txid_snapshot) and s.changed_xid < (select xmax from now)
), changed_steps as (
    select 0::bigint as reader, j.pipeline_id, s.job_id, s.name
    from recent_steps s join reactor.jobs j on j.id = s.job_id and j.pipeline_id = any ($2::uuid[])
    union all
    select r.number, j.pipeline_id, s.job_id, s.name
    from reader r join reactor.jobs j on j.pipeline_id = r.pipeline_id join reactor.steps s on s.job_id = j.id
        and (r.cursor is null
            or not txid_visible_in_snapshot(s.changed_xid, r.cursor) and s.changed_xid < (select xmax from now))
)
select kind, reader, pipeline_id, id, name, state, body, depends_on, epoch, snapshot
from (
    select 'epoch' as kind, -1::bigint as reader, null::uuid as pipeline_id, 0 as rank, null::bigint as id,
        null as name, null as state, null as body, null as depends_on, n.epoch, n.snapshot
    from now n
    union all
    select 'job', c.reader, c.pipeline_id, 1, c.id, null, null, (
        select row_to_json(r)::text from (
            select j.id, j.job_type, j.state, j.queue, j.priority, j.scope, j.is_current, j.exclusive, j.tags,
                j.pipeline_id, j.parent_id, j.children, j.attempts, coalesce(j.quota, j.max_attempts) as quota,
                j.waiting_on, j.locked_by, j.locked_at, j.progress, left(j.status_message, 2000) as status_message,
                left(j.error, 2000) as error,
                case when j.run_after is not null then least(j.run_after, timestamptz '9999-12-31 23:59:59.999999+00')
                    end as run_after,
                j.created_at, j.started_at, j.finished_at, j.step_counts, d.value as durations) r),
        case when c.cursor is null or not txid_visible_in_snapshot(j.inserted_xid, c.cursor) then
            array_to_json(array(select d.depends_on from reactor.dependencies d where d.job_id = j.id order by 1))::text
        end, null, null
    from changed_jobs c join reactor.jobs j on j.id = c.id
    cross join lateral reactor.durations(j.id, j.state, j.attempt_id, j.waiting_on, j.created_at, j.requeued_at,
        j.ready_at, j.run_after, j.locked_at, j.finished_at, (select n.at from now n)) d
    union all
    select 'step', c.reader, c.pipeline_id, 2, c.job_id, c.name, null, (
        select row_to_json(r)::text from (
            select s.job_id, s.name, s.position, s.state, left(s.error, 2000) as error, s.attempts, s.max_attempts,
                s.run_after, s.started_at, s.finished_at,
                case when s.state = 'running'
                    then coalesce(s.ran_seconds, 0) + date_part('epoch', (select n.at from now n) - s.started_at)
                    else s.ran_seconds end as ran) r),
        null, null, null
    from changed_steps c join reactor.steps s on s.job_id = c.job_id and s.name = c.name
    union all
    select 'pipeline', c.reader, c.pipeline_id, 3, null, null, p.state, row_to_json(p)::text, null, null, null
    from (select distinct reader, pipeline_id from changed_jobs union select number, pipeline_id from reader) c
    cross join lateral (select * from reactor.pipelines p where p.pipeline_id = c.pipeline_id offset 0) p
) changes
order by reader, pipeline_id, rank, id, name
