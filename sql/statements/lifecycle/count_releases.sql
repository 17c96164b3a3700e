-- How often the server undid an attempt at the job $1, or its pod was shut down: the pause before the next one grows.
select count(*) from reactor.attempts a where a.job_id = $1 and a.outcome = 'released'
