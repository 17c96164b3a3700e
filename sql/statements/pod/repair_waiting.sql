-- Puts right up to $1 jobs that wait although nothing they need is open. There should be none: each is a bug found.
select id from reactor.reconcile($1::int) as id
