-- Pauses ($2) or resumes the queue $1, which needs a row from now on. Returns whether it was paused before. Looked at
-- and locked first, so that of two operators the second is told what the first one did.
with before as materialized (
    select q.paused from reactor.queues q where q.name = $1::text for no key update
), written as (
    insert into reactor.queues as q (name, paused)
    select $1::text, $2::boolean from (select count(*) from before) looked
    on conflict (name) do update set paused = excluded.paused
    returning q.name
)
select coalesce((select b.paused from before b), false) as was from written
