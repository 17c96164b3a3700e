-- The durations of the jobs that ended in each bucket of $2 seconds that overlaps the last $1 seconds, for the $3 types
-- of which most ended.
with bounds as materialized (
    select make_interval(secs => $2::float8) as width,
        date_bin(make_interval(secs => $2::float8), clock_timestamp() - make_interval(secs => $1::float8), 'epoch')
            as first
), ended as materialized (
    select j.job_type, date_bin((select width from bounds), j.finished_at, 'epoch') as at,
        extract(epoch from j.finished_at - j.started_at)::float8 as seconds
    from reactor.jobs j
    where j.finished_at >= (select first from bounds) and j.job_type is not null and j.started_at is not null
), busiest as (
    select e.job_type from ended e group by e.job_type order by count(*) desc, e.job_type limit $3::int
)
select e.job_type, e.at, (percentile_cont(0.5) within group (order by e.seconds))::float8 as p50_seconds,
    (percentile_cont(0.95) within group (order by e.seconds))::float8 as p95_seconds, count(*) as count
from ended e join busiest b on b.job_type = e.job_type
group by e.job_type, e.at
order by e.job_type, e.at
