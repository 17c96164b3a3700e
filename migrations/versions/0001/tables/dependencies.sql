-- The edges of pipelines. functions/connect_dependencies.sql checks and connects new edges, functions/dependencies.sql
-- resolves them when jobs end.
create table reactor.dependencies (
    job_id bigint not null,
    depends_on bigint not null,
    needs text not null default 'completed'
        constraint needs_is_known check (
            case when needs in ('completed', 'finished') then true
                else reactor.refuse(format('reactor: a dependency can''t need %L', needs),
                    'Use ''completed'' (the default) or ''finished'' (any terminal state).') end),
    resolved boolean,
    primary key (job_id, depends_on),
    -- Checked at commit: the triggers run earlier, and their messages say more.
    constraint dependencies_job_id_fkey foreign key (job_id) references reactor.jobs on delete cascade
        deferrable initially deferred,
    constraint dependencies_depends_on_fkey foreign key (depends_on) references reactor.jobs on delete cascade
        deferrable initially deferred
);
comment on table reactor.dependencies is
    'job_id waits for depends_on. '
    'Insert the jobs and these rows in one transaction: the whole DAG becomes visible at once.';
comment on column reactor.dependencies.needs is
    'completed (default): if the other job ends in any other state, this job is cancelled; '
    'finished: any terminal state';
comment on column reactor.dependencies.resolved is
    'engine only: true: the need is met; false: not yet; NULL: just inserted';
create index dependencies_new on reactor.dependencies (job_id) where resolved is null;
-- The dependants of a job that ends, by id, so that each can be passed once.
create index dependencies_open on reactor.dependencies (depends_on, job_id) where not resolved;
-- For deleting a job: the foreign key searches its resolved edges too.
create index dependencies_depends_on on reactor.dependencies (depends_on);
