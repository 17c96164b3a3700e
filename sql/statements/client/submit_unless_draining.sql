-- Submits the jobs $1 as submit.sql does, or as a pipeline ($2), unless draining is on. One statement reads the setting
-- and inserts: once draining is committed, only submissions that had already started still get through. While draining
-- is on it returns one row, with only `draining` set.
select s.draining, m.place, m.id, m.pipeline_id, m.outcome, m.field, m.message, m.warning, m.known_types
from reactor.settings s
left join lateral reactor.submit_checked(
    case when s.draining then '[]'::jsonb else cast($1 as jsonb) end, $2::boolean) m on true
order by m.place
