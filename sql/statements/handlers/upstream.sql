-- The jobs that the job $1 depended on, with their results.
select p.id, p.job_type, p.state, p.result
from reactor.dependencies d join reactor.jobs p on p.id = d.depends_on
where d.job_id = $1::bigint order by p.id
