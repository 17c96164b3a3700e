-- Records an operator's action in the transaction that performs it: who $1, what $2, target $3, from where $4, details
-- $5.
insert into reactor.audit (who, what, target, came_from, details)
values ($1::text, $2::text, $3::text, $4::text, $5::jsonb)
