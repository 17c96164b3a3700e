-- Notes what an operator did, in the transaction that does it: who $1, what $2, to what $3, from where $4, and how it went $5.
insert into reactor.audit (who, what, target, came_from, details)
values ($1::text, $2::text, $3::text, $4::text, $5::jsonb)
