-- Why the jobs $1 can't be retried: the first exclusive one whose scope is taken, with the job that holds it. That may
-- be another of them: two finished jobs of one scope can't both start again.
select j.id, j.scope, o.id as holder_id
from reactor.jobs j
join reactor.jobs o on o.scope = j.scope and o.exclusive and o.id <> j.id
    and (o.phase in ('waiting', 'ready', 'scheduled', 'parked', 'taken') or o.holds_scope
        or o.id = any ($1::bigint[]) and o.id < j.id)
where j.id = any ($1::bigint[]) and j.exclusive and j.state in ('completed', 'partial', 'failed', 'cancelled')
order by j.id, o.id limit 1
