-- Makes scheduled jobs and retries due, so that tests need not wait.
update reactor.jobs j set run_after = null where j.state = 'pending' and j.run_after is not null
