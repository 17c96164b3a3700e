-- Releases or cancels further dependants of jobs that ended with more than their ends handle, up to $1 of them. Returns
-- the seconds after which there is more to do; 0: now, NULL: nothing is left.
-- Calls reactor.resolve_more (schema/functions/dependencies.sql).
select next_in_seconds from reactor.resolve_more($1::int)
