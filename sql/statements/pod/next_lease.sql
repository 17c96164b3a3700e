-- The seconds until the next lease ends, if it is not renewed; NULL: there is none.
select extract(epoch from min(w.lease_until) - clock_timestamp())::float8 as seconds
from reactor.workers w where w.ended_at is null
