-- Removes the limit of the queue $1, job type $2 and lane $3 (empty: any). No row: there was none.
delete from reactor.limits l where l.queue = $1::text and l.job_type = $2::text and l.lane = $3::text
returning l.declared is not null as is_declared
