-- Workers that ended more than $1 seconds ago are of no interest to anybody.
delete from reactor.workers w
where w.ended_at < clock_timestamp() - make_interval(secs => $1::float8)
    and not exists (select from reactor.jobs j where j.worker_id = w.id)
