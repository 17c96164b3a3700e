-- Limits the queue $1 to $2 running jobs over all pods (NULL: no limit). Returns the previous limit.
with before as materialized (
    select q.max_running from reactor.queues q where q.name = $1::text for no key update
), written as (
    insert into reactor.queues as q (name, max_running)
    select $1::text, $2::int from (select count(*) from before) locked
    on conflict (name) do update set max_running = excluded.max_running
    returning q.name
)
select (select b.max_running from before b) as was from written
