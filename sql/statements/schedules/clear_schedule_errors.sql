-- Lets schedules that could not be read be tried again: a worker that starts may know a time zone that earlier ones did
-- not.
update reactor.schedules s set error = null where s.error is not null and s.next_run_at is null
