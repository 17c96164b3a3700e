-- The handlers of the jobs $2, which were taken from the worker $1, have stopped: releases their scopes. Locks them by
-- id, as a settle does.
with stopped as materialized (
    select j.id from reactor.jobs j
    where j.id = any ($2::bigint[]) and j.worker_id = $1::uuid and j.state <> 'running'
    order by j.id for no key update
)
update reactor.jobs j set worker_id = null, holds_scope = false, changed_xid = txid_current()
from stopped s where j.id = s.id
returning j.id
