-- Takes the running job $1 from a worker that is dead, with a fresh quota, to be run at once. No row: it is not running, or
-- its worker lives.
select id from reactor.sweep(1, single => $1::bigint)
