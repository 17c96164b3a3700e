-- Moves up to $1 scheduled jobs that are due into the index of ready jobs. Returns their number, and the seconds until
-- there is more to do (NULL: nothing is scheduled). Both are as of one time: a job that becomes due meanwhile is the
-- next one. One that another transaction has locked is due again in a second: the end of that transaction may not
-- notify.
with due as materialized (
    select j.id from reactor.jobs j
    where j.phase = 'scheduled' and j.run_after <= statement_timestamp()
    order by j.run_after limit $1::int
    for no key update skip locked
), moved as (
    update reactor.jobs j set ready_at = j.run_after, run_after = null, phase = 'ready', changed_xid = txid_current()
    from due where j.id = due.id
    returning j.id
)
select
    (select count(*) from moved)::int as moved,
    least(
        (select extract(epoch from min(j.run_after) - clock_timestamp())::float8 from reactor.jobs j
            where j.phase = 'scheduled' and j.run_after > statement_timestamp() and j.run_after < 'infinity'),
        (select 1::float8 where exists (
            select from reactor.jobs j
            where j.phase = 'scheduled' and j.run_after <= statement_timestamp()
                and j.id not in (select d.id from due d)))) as next_in_seconds
