-- Unparks the first jobs of at most 500 scopes in which all jobs are parked, although no worker holds the scope. The
-- end of a scope's job does that; this repairs what a change by hand left behind. Returns the scopes.
-- Calls reactor.free_scopes (schema/functions/scopes.sql).
with recursive parked (scope) as (
    (select j.scope from reactor.jobs j
        where j.phase = 'parked' and j.scope is not null order by j.scope limit 1)
    union all
    select (select j.scope from reactor.jobs j
        where j.phase = 'parked' and j.scope > p.scope order by j.scope limit 1)
    from parked p where p.scope is not null
), forgotten as materialized (
    select array_agg(f.scope) as scopes from (
        select p.scope from parked p
        where p.scope is not null
            and not exists (select from reactor.jobs h where h.scope = p.scope and h.holds_scope)
            and not exists (select from reactor.jobs r where r.scope = p.scope and r.phase = 'ready')
            and not exists (select from reactor.freed_scopes f where f.scope = p.scope)
        limit 500) f
)
select f.scopes, reactor.free_scopes(f.scopes) from forgotten f where f.scopes is not null
