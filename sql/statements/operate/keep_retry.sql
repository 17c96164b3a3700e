-- If the retry in this transaction has left something to do, its caller does it, and for $1 seconds the pods don't.
-- Returns the retry's id.
update reactor.retries r set not_before = clock_timestamp() + make_interval(secs => $1::float8)
where r.xid = txid_current()
returning r.id
