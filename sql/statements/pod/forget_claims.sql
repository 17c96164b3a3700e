-- Deletes up to $1 claims of which the worker holds no job any more, oldest first.
delete from reactor.claims c using (
    select o.worker_id, o.id, o.job_ids from reactor.claims o order by o.id limit $1::int) old
where c.worker_id = old.worker_id and c.id = old.id and not exists (
    select from reactor.jobs j where j.id = any (old.job_ids) and j.worker_id = old.worker_id)
