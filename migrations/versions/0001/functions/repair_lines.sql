-- Housekeeping for limits. Announces ready jobs whose line is not known, and frees places of jobs that no worker holds:
-- changes by hand may leave such traces (a deleted row, a disabled trigger). Forgets rates that have no meaning any
-- more, and turns of kinds without lanes.
create or replace function reactor.repair_lines(out announced int, out freed int)
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
begin
    with recursive line (queue, job_type, lane, priority) as (
        (select j.queue, j.job_type, j.lane, j.priority from reactor.jobs j
            where j.phase = 'ready' and j.lane is not null
            order by j.queue, j.job_type, j.lane, j.priority limit 1)
        union all
        select n.* from line l cross join lateral (
            select j.queue, j.job_type, j.lane, j.priority from reactor.jobs j
            where j.phase = 'ready' and j.lane is not null
                and (j.queue, j.job_type, j.lane, j.priority) > (l.queue, l.job_type, l.lane, l.priority)
            order by j.queue, j.job_type, j.lane, j.priority limit 1) n
    )
    insert into reactor.arrivals (queue, job_type, lane, priority, xid)
    select l.queue, l.job_type, l.lane, l.priority, txid_current() from line l
    where not exists (
            select from reactor.lines k
            where k.queue = l.queue and k.job_type = l.job_type and k.lane = l.lane and k.priority = l.priority)
        and not exists (
            select from reactor.arrivals a
            where a.queue = l.queue and a.job_type = l.job_type and a.lane = l.lane and a.priority = l.priority);
    get diagnostics announced = row_count;
    select count(*) filter (where reactor.leave_places(array[p.job_id])) into freed
    from reactor.places p
    where not exists (select from reactor.jobs j where j.id = p.job_id and j.worker_id is not null);
    -- Claims write these rows, too.
    delete from reactor.rates d using (
        select r.queue, r.job_type, r.lane from reactor.rates r
        where r.paid_until < clock_timestamp() - interval '1 minute' for update skip locked) r
    where d.queue = r.queue and d.job_type = r.job_type and d.lane = r.lane;
    delete from reactor.lines d using (
        select l.queue, l.job_type from reactor.lines l
        where l.lane = '' and l.turn < clock_timestamp() - interval '1 minute' and not exists (
            select from reactor.lines o where o.queue = l.queue and o.job_type = l.job_type and o.lane > '')
        for update skip locked) l
    where d.queue = l.queue and d.job_type = l.job_type and d.lane = '';
    if announced > 0 or freed > 0 then
        perform reactor.notify_jobs();
    end if;
end
$$;
comment on function reactor.repair_lines is 'Finds jobs of lanes that claims do not know, and places without a job.';
