create table reactor.settings (
    the_only_row boolean primary key default true constraint settings_has_one_row check (the_only_row),
    draining boolean not null default false,
    idempotency_window interval not null default interval '24 hours'
);
comment on table reactor.settings is 'What all pods must agree on; one row.';
comment on column reactor.settings.draining is 'While true no job is claimed; running ones end, inserted ones are kept.';
comment on column reactor.settings.idempotency_window is 'How long an idempotency_key keeps a second job away.';
insert into reactor.settings default values;
