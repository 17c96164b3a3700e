-- Makes scheduled jobs and retries due, so that tests need not wait.
update reactor.jobs j set ready_at = clock_timestamp(), run_after = null where j.phase = 'scheduled'
