-- Deletes the rows of workers that ended more than $1 seconds ago and hold nothing.
delete from reactor.workers w
where w.ended_at < clock_timestamp() - make_interval(secs => $1::float8)
    and not exists (select from reactor.claims c where c.worker_id = w.id)
