-- The pipeline $1: its derived state, progress and counts.
select p.* from reactor.pipelines p where p.pipeline_id = $1::uuid
