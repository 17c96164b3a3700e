-- What indexes need to know of a job, in one column. A job that completes keeps the phase taken: its update then
-- changes no index (HOT). An exclusive one does not, because its scope becomes free for others.
--
-- The engine's statements set the phase together with the state. For changes by hand the trigger after_update sets it,
-- for inserts the trigger before_insert.
create or replace function reactor.phase(
    state text, run_after timestamptz, parked boolean, job_type text, exclusive boolean) returns text
language sql immutable parallel safe
return case state
    when 'pending' then case when job_type is null then 'adopted' when run_after is not null then 'scheduled'
        when parked then 'parked' else 'ready' end
    when 'running' then 'taken'
    when 'completed' then case when exclusive then 'completed' else 'taken' end
    when 'partial' then 'failed'
    else state end;
comment on function reactor.phase is 'The phase of a job with these columns.';
