-- Pauses ($2) or resumes the queue $1; it has a row from then on. Returns whether it was paused before. The row is
-- locked and read first, so that of two operators the second sees what the first one did.
with before as materialized (
    select q.paused from reactor.queues q where q.name = $1::text for no key update
), written as (
    insert into reactor.queues as q (name, paused)
    select $1::text, $2::boolean from (select count(*) from before) locked
    on conflict (name) do update set paused = excluded.paused
    returning q.name
)
select coalesce((select b.paused from before b), false) as was from written
