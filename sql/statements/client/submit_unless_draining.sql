-- Submits the jobs $1 as submit.sql does, unless draining is on. One statement reads the setting and inserts: once
-- draining is committed, only submissions that had already started still get through. While draining is on it returns
-- one row, with only `draining` set.
select s.draining, m.id, m.pipeline_id, m.outcome
from reactor.settings s
left join lateral reactor.submit_many(case when s.draining then '[]'::jsonb else cast($1 as jsonb) end) m on true
order by m.place
