-- Makes scheduled jobs and retries due, so that tests need not wait.
update reactor.jobs j set run_after = null where j.phase = 'scheduled'
