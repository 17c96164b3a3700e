-- The steps that earlier attempts at the job $1 left. Without a fence: the reader has claimed the job, so no other
-- attempt writes.
select name, state, result from reactor.steps where job_id = $1::bigint order by position, name
