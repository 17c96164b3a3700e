-- Unparks the first jobs of parked scopes that no worker holds. The end of a scope's job does that; this repairs what a
-- change by hand left behind. Returns the scopes.
with recursive parked (scope) as (
    (select j.scope from reactor.jobs j where j.state = 'pending' and j.parked order by j.scope limit 1)
    union all
    select (select j.scope from reactor.jobs j where j.state = 'pending' and j.parked and j.scope > p.scope
        order by j.scope limit 1)
    from parked p where p.scope is not null
), forgotten as materialized (
    select array_agg(p.scope) as scopes from parked p
    where p.scope is not null
        and not exists (select from reactor.jobs h where h.scope = p.scope and h.worker_id is not null)
)
select f.scopes, reactor.free_scopes(f.scopes) from forgotten f where f.scopes is not null
