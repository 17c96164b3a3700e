-- The seconds until the next schedule is due (NULL: none); 0 or less if one is due now or its time is to be computed.
select extract(epoch from min(coalesce(s.next_run_at, 'epoch')) - clock_timestamp())::float8
from reactor.schedules s
where s.enabled and (s.next_run_at is not null or s.error is null)
