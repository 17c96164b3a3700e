-- The handlers of the jobs $2, which were taken from the worker $1, have stopped: releases their scopes.
update reactor.jobs j set worker_id = null, changed_xid = txid_current()
where j.id = any ($2::bigint[]) and j.worker_id = $1::uuid and j.state <> 'running'
returning j.id
