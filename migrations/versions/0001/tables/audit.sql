-- Written in the transaction of the action itself (sql/statements/operate/record_action.sql).
create table reactor.audit (
    id bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    who text not null default session_user,
    what text not null,
    target text,
    came_from text,
    details jsonb not null default '{}'
);
comment on table reactor.audit is 'Operator actions: who, what, when, from where.';
create index audit_at on reactor.audit using brin (at);
