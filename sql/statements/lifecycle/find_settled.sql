-- After a settle whose answer was lost: the state of each job that was settled by the attempt given. An attempt that ended
-- without finishing its job is found in the history, and one that finished it is still on the row.
select j.id, j.state from unnest($1::bigint[], $2::uuid[]) as g (id, attempt_id)
join reactor.jobs j on j.id = g.id
where j.attempt_id = g.attempt_id and j.state <> 'running'
    or exists (
        select from reactor.attempts a
        where a.job_id = g.id and a.attempt_id = g.attempt_id and a.outcome in ('error', 'snoozed'))
