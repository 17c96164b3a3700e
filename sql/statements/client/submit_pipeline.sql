-- Submits jobs that depend on each other, all or none; see submit.sql. It joins the caller's transaction.
-- Calls reactor.submit_checked (schema/functions/job_types.sql).
select place, id, pipeline_id, outcome, field, message, warning, known_types
from reactor.submit_checked(cast($1 as jsonb), as_pipeline => true) order by place
