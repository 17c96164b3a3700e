-- What the pipeline $1 is doing: derived state, progress, counts.
select p.* from reactor.pipelines p where p.pipeline_id = $1::uuid
