-- Unparks the first jobs of at most 500 scopes in which all jobs are parked, although no worker holds the scope. The end
-- of a scope's job does that; this repairs what a change by hand left behind. Returns the scopes.
-- Calls reactor.free_scopes (schema/functions/scopes.sql).
with recursive parked (scope) as (
    (select j.scope from reactor.jobs j
        where j.state = 'pending' and j.run_after is null and j.job_type is not null and j.scope is not null and j.parked
        order by j.scope limit 1)
    union all
    select (select j.scope from reactor.jobs j
        where j.state = 'pending' and j.run_after is null and j.job_type is not null and j.parked and j.scope > p.scope
        order by j.scope limit 1)
    from parked p where p.scope is not null
), forgotten as materialized (
    select array_agg(f.scope) as scopes from (
        select p.scope from parked p
        where p.scope is not null
            and not exists (select from reactor.jobs h where h.scope = p.scope and h.worker_id is not null)
            and not exists (select from reactor.jobs r where r.scope = p.scope and r.state = 'pending'
                and r.run_after is null and r.job_type is not null and not r.parked)
            and not exists (select from reactor.freed_scopes f where f.scope = p.scope)
        limit 500) f
)
select f.scopes, reactor.free_scopes(f.scopes) from forgotten f where f.scopes is not null
