-- Which rows each role sees and writes, in addition to its privileges. The owner, and functions with its rights, see all.
alter table reactor.jobs enable row level security;
create policy insert_jobs on reactor.jobs for insert to reactor_producer with check (reactor.check_id(id));
create policy read_own_jobs on reactor.jobs for select to reactor_producer using (created_by = current_user::text);
create policy operate_jobs on reactor.jobs to reactor_worker using (true) with check (true);
create policy view_jobs on reactor.jobs for select to reactor_viewer using (true);

-- Producers see the dependencies of the jobs that they see.
alter table reactor.dependencies enable row level security;
create policy insert_dependencies on reactor.dependencies for insert to reactor_producer with check (true);
create policy read_own_dependencies on reactor.dependencies for select to reactor_producer
    using (exists (select from reactor.jobs j where j.id = job_id));
create policy operate_dependencies on reactor.dependencies to reactor_worker using (true) with check (true);
create policy view_dependencies on reactor.dependencies for select to reactor_viewer using (true);
