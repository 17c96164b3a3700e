-- Which rows each role sees and writes, in addition to its privileges. The owner, and functions with its rights, see
-- all of them.
alter table reactor.jobs enable row level security;
create policy insert_jobs on reactor.jobs for insert to reactor_producer with check (true);
-- The error has the name of the policy. (In a session that has drawn no id yet, currval raises one of its own.)
create policy leave_out_the_id_of_a_job_or_write_default on reactor.jobs as restrictive for insert to reactor_producer
    with check (id = currval('reactor.jobs_id_seq'::regclass) or reactor.may_write_engine_columns());
create policy read_own_jobs on reactor.jobs for select to reactor_producer using (created_by = current_user::text);
create policy operate_jobs on reactor.jobs to reactor_worker using (true) with check (true);
create policy view_jobs on reactor.jobs for select to reactor_viewer using (true);

-- Producers see the dependencies of the jobs that they see. Volatile, so that it also sees jobs that the statement
-- itself inserted: a WITH that inserts a whole DAG, and returns its edges.
create or replace function reactor.sees_job(id bigint) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    return exists (select from reactor.jobs j where j.id = sees_job.id);
end
$$;
comment on function reactor.sees_job is 'Whether the current user sees this job in reactor.jobs.';

alter table reactor.dependencies enable row level security;
create policy insert_dependencies on reactor.dependencies for insert to reactor_producer with check (true);
create policy read_own_dependencies on reactor.dependencies for select to reactor_producer
    using (reactor.sees_job(job_id));
create policy operate_dependencies on reactor.dependencies to reactor_worker using (true) with check (true);
create policy view_dependencies on reactor.dependencies for select to reactor_viewer using (true);
