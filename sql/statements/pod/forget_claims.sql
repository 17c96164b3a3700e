-- Deletes up to $1 claims of which the worker holds no job any more, oldest first.
delete from reactor.claims c using (
    select o.id, o.worker_id, o.job_ids from reactor.claims o order by o.id limit $1::int) old
where c.id = old.id and not exists (
    select from unnest(old.job_ids) i (id) join reactor.jobs j on j.id = i.id where j.worker_id = old.worker_id)
