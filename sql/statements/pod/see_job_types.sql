-- Notes that the job types of live workers were seen, at most once a minute over all pods, and removes those that were
-- not seen for $1 seconds. Waits for no row.
with seen as (
    select t.name from reactor.job_types t
    where t.last_seen_at < clock_timestamp() - interval '1 minute'
        and exists (select from reactor.live_workers w where t.name = any (w.job_types))
    order by t.name for no key update of t skip locked
), noted as (
    update reactor.job_types t set last_seen_at = clock_timestamp() from seen s where t.name = s.name
), unseen as (
    select t.name from reactor.job_types t
    where t.last_seen_at < clock_timestamp() - make_interval(secs => $1::float8)
        and not exists (select from reactor.live_workers w where t.name = any (w.job_types))
    order by t.name for update of t skip locked
)
delete from reactor.job_types t using unseen u where t.name = u.name
