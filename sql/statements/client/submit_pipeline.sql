-- Jobs that depend on each other, all or none, as a JSON array of reactor.submit_pipeline's. Joins the caller's transaction.
select place, id, pipeline_id, outcome from reactor.submit_pipeline(cast($1 as jsonb)) order by place
