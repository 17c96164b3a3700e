-- Creates the children $3 (a JSON array each, or NULL) of the attempts $2 of the jobs $1, in the transaction that
-- settles all of them next. Returns the number of children created, and the jobs whose exclusive scopes refused others.
-- An attempt that is not returned was stale or has no children, and created nothing.
-- Calls reactor.chain (schema/functions/chain.sql).
select id, created, busy from reactor.chain($1::bigint[], $2::uuid[], $3::jsonb[])
