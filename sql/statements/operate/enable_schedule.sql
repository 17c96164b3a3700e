-- Enables ($2) or disables the schedule $1. Returns whether it was enabled before, and no row if it does not exist. The
-- row is locked and read first, so that of two operators the second sees what the first one did.
with before as materialized (
    select s.enabled from reactor.schedules s where s.name = $1::text for no key update
), written as (
    update reactor.schedules s set enabled = $2::boolean from before b
    where s.name = $1::text and b.enabled <> $2::boolean
)
select b.enabled from before b
