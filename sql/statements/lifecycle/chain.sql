-- Creates the children $3 (a JSON array each, or NULL) of the attempts $2 of the jobs $1, in the transaction that
-- settles all of them next. Returns what became of each child: created, existing (the id is that of the holder of its
-- idempotency key) or busy (of the job that holds its exclusive scope).
-- An attempt that is not returned was stale or has no children, and created nothing.
-- Calls reactor.chain (schema/functions/chain.sql).
select id, ids, outcomes from reactor.chain($1::bigint[], $2::uuid[], $3::jsonb[])
