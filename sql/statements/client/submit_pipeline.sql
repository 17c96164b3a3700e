-- Submits jobs that depend on each other, all or none. It joins the caller's transaction.
-- Calls reactor.submit_pipeline (schema/functions/submit_pipeline.sql).
select place, id, pipeline_id, outcome from reactor.submit_pipeline(cast($1 as jsonb)) order by place
