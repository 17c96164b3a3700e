-- After a settle whose reply was lost: the states of the jobs $1 that their attempts $2 have settled. The attempt that
-- finished a job is still on its row; one that ended without finishing its job is in the history.
select j.id, j.state from unnest($1::bigint[], $2::uuid[]) as g (id, attempt_id)
join reactor.jobs j on j.id = g.id
where j.attempt_id = g.attempt_id and j.state <> 'running'
    or exists (
        select from reactor.attempts a
        where a.job_id = g.id and a.attempt_id = g.attempt_id and a.outcome in ('error', 'snoozed', 'released'))
