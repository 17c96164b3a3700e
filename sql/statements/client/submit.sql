-- Submits one or many jobs, a JSON array of objects with reactor.submit's arguments as keys. One parameter, so that it
-- reads the same for every driver. It joins the caller's transaction.
-- Calls reactor.submit_many (schema/functions/submit.sql).
select id, pipeline_id, outcome from reactor.submit_many(cast($1 as jsonb)) order by place
