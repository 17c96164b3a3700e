-- The first job that holds one of the idempotency keys $2, each with the type beside it in $1, within the window.
select j.id, j.pipeline_id
from unnest($1::text[], $2::text[]) with ordinality k (job_type, key, place)
join reactor.jobs j on j.job_type = k.job_type and j.idempotency_key = k.key and j.phase <> 'cancelled'
    and j.created_at >= clock_timestamp() - (select s.idempotency_window from reactor.settings s)
order by k.place limit 1
