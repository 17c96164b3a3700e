-- Moves up to $1 scheduled jobs that are due into the index of ready jobs. Returns their number, and the seconds until
-- the next one is due (NULL: none). The time is a subquery because the index can't be used with a bare volatile call.
with due as materialized (
    select j.id from reactor.jobs j
    where j.phase = 'scheduled' and j.run_after <= (select clock_timestamp())
    order by j.run_after limit $1::int
    for no key update skip locked
), moved as (
    update reactor.jobs j set ready_at = j.run_after, run_after = null, phase = 'ready', changed_xid = txid_current()
    from due where j.id = due.id
    returning j.id
)
select
    (select count(*) from moved)::int as moved,
    (select extract(epoch from min(j.run_after) - clock_timestamp())::float8 from reactor.jobs j
        where j.phase = 'scheduled' and j.run_after > (select clock_timestamp())
            and j.run_after < 'infinity') as next_in_seconds
