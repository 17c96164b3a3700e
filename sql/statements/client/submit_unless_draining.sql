-- Submits the jobs $1 (as submit.sql does) unless draining is on, which the same statement reads: once that is committed,
-- only what was on its way already still comes in. One row with draining alone where it is on.
select s.draining, m.id, m.pipeline_id, m.outcome
from reactor.settings s
left join lateral reactor.submit_many(case when s.draining then '[]'::jsonb else cast($1 as jsonb) end) m on true
order by m.place
