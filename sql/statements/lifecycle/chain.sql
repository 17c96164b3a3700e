-- Creates the children $3 (a JSON array each) of the attempts $2 of the jobs $1, in the transaction that settles them next.
-- Returns how many were created, and which jobs' exclusive scopes kept others away. An attempt that does not come back was
-- stale, and created nothing.
select id, created, busy from reactor.chain($1::bigint[], $2::uuid[], $3::jsonb[])
