-- What keeps due jobs from being claimed: draining, and queues that are paused or limited, with the number of their
-- jobs that workers hold.
select s.draining, q.name as queue, q.paused, q.max_running,
    (select count(*)::int from reactor.held_jobs j where j.queue = q.name) as running
from reactor.settings s left join reactor.queues q on q.paused or q.max_running is not null
order by q.name
