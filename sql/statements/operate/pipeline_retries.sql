-- The jobs of the pipeline $1 that a large retry has not started over yet. A cancel must name them too.
select j.id
from reactor.retry_parts p cross join lateral unnest(p.ids) i (id) join reactor.jobs j on j.id = i.id
where p.todo = 'start' and j.pipeline_id = $1::uuid
order by j.id
