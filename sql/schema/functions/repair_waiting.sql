-- What should never be needed: jobs that wait although nothing they need is open. Returns those put right.
create function reactor.reconcile(batch int) returns setof bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    ids bigint[];
begin
    select array_agg(x.id) into ids from (
        select j.id from reactor.jobs j
        where j.state = 'waiting' and not exists (
            select from reactor.dependencies d join reactor.jobs p on p.id = d.depends_on
            where d.job_id = j.id and not d.resolved and p.state in ('waiting', 'pending', 'running'))
        order by j.id limit batch for no key update skip locked) x;
    if ids is not null then
        perform reactor.lock_predecessors(ids);
        perform reactor.reconsider(ids);
        return query select unnest(ids);
    end if;
end
$$;
comment on function reactor.reconcile is 'Puts right jobs that wait without reason; each one is a bug found.';
