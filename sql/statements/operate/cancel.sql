-- Cancels those of the jobs $1 that have not finished, for the reason $2. Returns them, with the state they were in.
select id, was from reactor.cancel($1::bigint[], $2::text)
