-- The numbers of jobs that were created, ended and failed in each bucket of $2 seconds that overlaps the last $1
-- seconds, empty buckets included. Both times are in the BRIN index.
with bounds as materialized (
    select make_interval(secs => $2::float8) as width,
        date_bin(make_interval(secs => $2::float8), clock_timestamp() - make_interval(secs => $1::float8), 'epoch')
            as first,
        date_bin(make_interval(secs => $2::float8), clock_timestamp(), 'epoch') as last
), created as (
    select date_bin((select width from bounds), j.created_at, 'epoch') as at, count(*) as n
    from reactor.jobs j
    where j.created_at >= (select first from bounds) and j.job_type is not null
    group by 1
), ended as (
    select date_bin((select width from bounds), j.finished_at, 'epoch') as at, count(*) as n,
        count(*) filter (where j.state = 'failed') as failed
    from reactor.jobs j
    where j.finished_at >= (select first from bounds) and j.job_type is not null
    group by 1
)
select s.at, coalesce(e.n, 0) as finished, coalesce(e.failed, 0) as failed, coalesce(c.n, 0) as created
from bounds b
cross join generate_series(b.first, b.last, b.width) as s (at)
left join created c on c.at = s.at
left join ended e on e.at = s.at
order by s.at
