-- The seconds until the next lease can be found lost, if it is not renewed (see reactor.expire_workers); NULL: there is
-- none.
select extract(epoch from
    min(greatest(w.lease_until, v.contact_since + reactor.return_time(w.heartbeat_at, w.lease_until)))
        - clock_timestamp())::float8 as seconds
from reactor.workers w
cross join (
    select min(v.contact_since) as contact_since from reactor.workers v
    where reactor.is_in_contact(v.heartbeat_at, v.lease_until)) v
where w.ended_at is null
