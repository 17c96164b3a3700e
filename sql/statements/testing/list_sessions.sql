-- The sessions of the database $1: connections that a test did not close.
select format('%s (%s: %s)', a.application_name, a.state, left(a.query, 80)) as session
from pg_stat_activity a
where a.datname = $1::text and a.backend_type = 'client backend'
