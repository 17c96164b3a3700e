-- A worker that starts may know a time zone that its predecessors did not: schedules that nobody could read are read again.
update reactor.schedules s set error = null where s.error is not null and s.next_run_at is null
