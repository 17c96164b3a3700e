-- Submits the jobs $1 as submit_pipeline.sql does, unless draining is on; see submit_unless_draining.sql.
select s.draining, m.place, m.id, m.pipeline_id, m.outcome
from reactor.settings s
left join lateral reactor.submit_pipeline(case when s.draining then '[]'::jsonb else cast($1 as jsonb) end) m on true
order by m.place
