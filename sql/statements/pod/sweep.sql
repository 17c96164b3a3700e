-- Puts back what dead workers hold, at most $1 jobs: again while attempts are left, else failed.
select id, state from reactor.sweep($1::int)
