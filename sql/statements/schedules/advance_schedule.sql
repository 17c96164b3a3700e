-- Sets the schedule $1 to its next tick $2 (NULL: never; its error $5 says why), in the transaction that inserted the
-- job $4 of the tick $3. $3 and $4: NULL leaves them unchanged.
update reactor.schedules s set next_run_at = $2::timestamptz, last_run_at = coalesce($3::timestamptz, s.last_run_at),
    last_job_id = coalesce($4::bigint, s.last_job_id), error = $5::text
where s.name = $1::text
