-- The facts about the job $1.
select coalesce(j.meta, '{}') as meta from reactor.jobs j where j.id = $1::bigint
