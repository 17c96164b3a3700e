create table reactor.dependencies (
    job_id bigint not null,
    depends_on bigint not null,
    needs text not null default 'completed'
        constraint needs_is_known check (
            case when needs in ('completed', 'finished') then true
                else reactor.refuse(format('reactor: a dependency can''t need %L', needs),
                    'Use ''completed'' (the default) or ''finished'' (any end will do).') end),
    resolved boolean,
    primary key (job_id, depends_on),
    -- Checked at commit: the triggers look first, and their messages say more.
    constraint dependencies_job_id_fkey foreign key (job_id) references reactor.jobs on delete cascade
        deferrable initially deferred,
    constraint dependencies_depends_on_fkey foreign key (depends_on) references reactor.jobs on delete cascade
        deferrable initially deferred
);
comment on table reactor.dependencies is
    'job_id waits for depends_on. Insert the jobs and these rows in one transaction: a whole DAG appears at once.';
comment on column reactor.dependencies.needs is
    'completed (default): if the other one ends otherwise, this job is cancelled; finished: any end will do';
comment on column reactor.dependencies.resolved is 'engine only: true: the need is met; false: not yet; NULL: just inserted';
create index dependencies_new on reactor.dependencies (job_id) where resolved is null;
create index dependencies_open on reactor.dependencies (depends_on) where not resolved;
-- For deleting a job: the foreign key looks for its resolved edges too.
create index dependencies_depends_on on reactor.dependencies (depends_on);
