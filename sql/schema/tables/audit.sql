-- Written in the transaction of the action itself (sql/statements/operate/record_action.sql). Roles may write the
-- columns that describe the action, and not `at` and `written_by` (privileges.sql): what the HTTP server or the command
-- line says about its user can be compared with the role that really wrote the row.
create table reactor.audit (
    id bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    who text not null default session_user,
    written_by text not null default session_user,
    what text not null,
    target text,
    came_from text,
    details jsonb not null default '{}'
);
comment on table reactor.audit is 'Operator actions: who, what, when, from where.';
comment on column reactor.audit.at is 'set by the database';
comment on column reactor.audit.who is 'the operator, as the program that wrote the row says';
comment on column reactor.audit.written_by is 'set by the database: the role that logged in';
create index audit_at on reactor.audit using brin (at);
