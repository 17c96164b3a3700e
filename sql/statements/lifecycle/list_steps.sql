-- What earlier attempts at the job $1 left of its steps. No fence: whoever reads this has claimed the job before, so nobody
-- else can be writing.
select name, state, result from reactor.steps where job_id = $1::bigint order by position, name
