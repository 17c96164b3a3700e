-- The state of a pipeline, derived from its jobs and stored nowhere. Rows without a job_type, which are never run,
-- don't count.

-- From the numbers of jobs that are unfinished, completed, partial, failed and cancelled.
create or replace function reactor.pipeline_state(
    open bigint, completed bigint, partial bigint, failed bigint, cancelled bigint)
    returns text
language sql immutable parallel safe
return case
    when open > 0 then 'running'
    when failed + partial > 0 then case when completed + partial > 0 then 'partial' else 'failed' end
    when cancelled > 0 then 'cancelled'
    else 'completed' end;
comment on function reactor.pipeline_state is
    'running while a job is unfinished; else partial (some done, some not), failed (nothing done), '
    'cancelled or completed.';

create or replace view reactor.pipelines as
select
    j.pipeline_id,
    reactor.pipeline_state(
        count(*) filter (where j.state in ('waiting', 'pending', 'running')),
        count(*) filter (where j.state = 'completed'),
        count(*) filter (where j.state = 'partial'),
        count(*) filter (where j.state = 'failed'),
        count(*) filter (where j.state = 'cancelled')) as state,
    avg(case when j.state in ('waiting', 'pending', 'running') then coalesce(j.progress, 0) else 1 end)::real
        as progress,
    count(*)::int as jobs,
    count(*) filter (where j.state = 'waiting')::int as waiting,
    count(*) filter (where j.state = 'pending')::int as pending,
    count(*) filter (where j.state = 'running')::int as running,
    count(*) filter (where j.state = 'completed')::int as completed,
    count(*) filter (where j.state = 'partial')::int as partial,
    count(*) filter (where j.state = 'failed')::int as failed,
    count(*) filter (where j.state = 'cancelled')::int as cancelled,
    min(j.created_at) as created_at,
    min(j.started_at) as started_at,
    case when bool_and(j.finished_at is not null) then max(j.finished_at) end as finished_at
from reactor.jobs j
where j.job_type is not null
group by j.pipeline_id;
comment on view reactor.pipelines is
    'One row per pipeline: its derived state, its progress, and the number of its jobs in each state.';
