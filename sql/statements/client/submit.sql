-- Submits one or many jobs, a JSON array of objects with reactor.submit's arguments as keys, unless a payload does not
-- fit its type. One parameter, so that it reads the same for every driver. It joins the caller's transaction.
-- Calls reactor.submit_checked (schema/functions/job_types.sql).
select place, id, pipeline_id, outcome, field, message, warning, known_types
from reactor.submit_checked(cast($1 as jsonb)) order by place
