-- Releases all that the worker $1 holds, and ends the worker, with its last counters $5 (NULL: unknown). Attempts that
-- had started ($2) end with the outcome $3 and the error $4, the others as if they had not been claimed. Returns the
-- jobs that had started. One statement: a pod that is shut down has little time, and its server may be far away.
--
-- Jobs whose rows other transactions have locked stay, and with them the worker: then NULL is returned, too.
with held as materialized (
    select j.id, j.attempt_id, s.attempt_id is not null as has_started
    from reactor.jobs j left join (select distinct unnest($2::uuid[])) as s (attempt_id) on s.attempt_id = j.attempt_id
    where j.worker_id = $1::uuid and j.state = 'running'
        and j.id in (select unnest(c.job_ids) from reactor.claims c where c.worker_id = $1::uuid)
), unlocked as materialized (
    select h.* from held h join reactor.jobs j on j.id = h.id and j.attempt_id = h.attempt_id
    order by h.id for no key update of j skip locked
), listed as materialized (
    select array_agg(u.id order by u.id) as ids, array_agg(u.attempt_id order by u.id) as attempt_ids,
        array_agg(case when u.has_started then $3::text else 'unstarted' end order by u.id) as outcomes,
        array_agg(case when u.has_started then $4::text end order by u.id) as errors,
        (select count(*) from held) > count(*) as is_incomplete
    from unlocked u
), settled as materialized (
    select s.id from listed l
    cross join lateral reactor.settle(l.ids, l.attempt_ids, l.outcomes, null, l.errors, null, null, null, null) as s
    where l.ids is not null
), ended as (
    update reactor.workers w set ended_at = clock_timestamp(), counts = coalesce($5::jsonb, w.counts)
    where w.id = $1::uuid and w.ended_at is null and not (select l.is_incomplete from listed l)
)
select s.id from settled s join held h on h.id = s.id and h.has_started
union all select null from listed l where l.is_incomplete
order by id
