-- The type of the job $1, for a worker that is asked to run that job.
select j.job_type from reactor.jobs j where j.id = $1::bigint
