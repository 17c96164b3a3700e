-- The jobs of the pipeline $1 that are in one of the states $2.
select j.id from reactor.jobs j where j.pipeline_id = $1::uuid and j.state = any ($2::text[]) order by j.id
