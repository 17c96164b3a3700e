-- While draining ($1) no pod takes a job. Returns whether it was so before.
with before as materialized (
    select s.draining from reactor.settings s for no key update
), written as (
    update reactor.settings s set draining = $1::boolean returning s.draining
)
select b.draining as was from before b, written
