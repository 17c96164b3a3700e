-- Up to $1 schedules that are due or whose next time is to be computed, locked until the end of the transaction: each
-- goes to one of any number of pods. `now` is the database's clock, and not before the time that made them due.
select s.name, s.cron, s.every, s.timezone, s.catch_up, s.created_at, s.next_run_at, s.last_run_at,
    clock_timestamp() as now
from reactor.schedules s
where s.enabled and (s.next_run_at <= (select clock_timestamp()) or (s.next_run_at is null and s.error is null))
order by s.next_run_at nulls first, s.name limit $1::int
for no key update of s skip locked
