-- Sets the limit of the queue $1, job type $2 and lane $3 (empty: any): running jobs $4, rate $5 per $6 seconds, burst
-- $7. Returns the previous one, or NULL.
with before as materialized (
    select to_jsonb(l) as row from reactor.limits l
    where l.queue = $1::text and l.job_type = $2::text and l.lane = $3::text for no key update
), written as (
    insert into reactor.limits as l (queue, job_type, lane, max_running, rate, period, burst)
    select $1::text, $2::text, $3::text, $4::int, $5::int, make_interval(secs => $6::float8), $7::int
    from (select count(*) from before) locked
    on conflict (queue, job_type, lane) do update set max_running = excluded.max_running, rate = excluded.rate,
        period = excluded.period, burst = excluded.burst
    returning l.queue
)
select (select jsonb_build_object('max_running', b.row -> 'max_running', 'rate', b.row -> 'rate',
    'burst', b.row -> 'burst', 'period', b.row -> 'period') from before b)::text as was from written
