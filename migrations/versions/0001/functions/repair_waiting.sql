-- A safety net: jobs that wait although nothing they need is unfinished. Each job it returns is the trace of a bug.
create or replace function reactor.repair_waiting(batch int) returns setof bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    ids bigint[];
begin
    select array_agg(x.id) into ids from (
        select j.id from reactor.jobs j
        where j.state = 'waiting'
            -- A retry has suspended those with waiting_on = 0.
            and (j.waiting_on > 0 or not exists (select from reactor.retries))
            and not exists (
            select from reactor.dependencies d join reactor.jobs p on p.id = d.depends_on
            where d.job_id = j.id and not d.resolved and (p.state in ('waiting', 'pending', 'running')
                or exists (select from reactor.unresolved u
                    where u.depends_on = p.id and u.after_id < j.id and u.until_id >= j.id)))
        order by j.id limit batch for no key update skip locked) x;
    if ids is not null then
        perform reactor.lock_predecessors(ids);
        perform reactor.recompute_dependencies(ids);
        perform reactor.resolve_ended(ids);
        return query select unnest(ids);
    end if;
end
$$;
comment on function reactor.repair_waiting is
    'Recomputes jobs that wait without a reason; returns them. Each one is a bug found.';
