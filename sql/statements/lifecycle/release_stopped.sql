-- The worker $1 says that the handlers of these jobs, which were taken from it, have stopped: their scopes are free now.
update reactor.jobs j set worker_id = null, changed = pg_current_xact_id()
where j.id = any ($2::bigint[]) and j.worker_id = $1::uuid and j.state <> 'running'
returning j.id
