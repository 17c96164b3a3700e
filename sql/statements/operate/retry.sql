-- Starts finished jobs anew, with those that were cancelled because of them; returns all that are to run again.
select id, state from reactor.retry($1::bigint[])
