-- Every trigger in one place: what runs when a row is written. The functions' own files say why.

-- At the producer's commit: functions/notify.sql. No WHEN, which every statement would parse again.
create constraint trigger after_insert after insert on reactor.jobs
    deferrable initially deferred for each row execute function reactor.after_insert();
create constraint trigger after_wakeup after insert on reactor.wakeups
    deferrable initially deferred for each row when (new.channel is not null) execute function reactor.after_wakeup();

create or replace trigger before_insert before insert on reactor.jobs
    for each row execute function reactor.before_insert();
-- After and not before the update: with a trigger before it, an update of any column fetches and locks its rows again.
create or replace trigger check_update after update of job_type, payload, queue, priority, max_attempts,
    timeout_seconds, tags, scope, lane, exclusive, idempotency_key, meta, submitted_by, delivery
    on reactor.jobs
    for each row execute function reactor.check_update();

-- Not for the engine's own statements, which set changed_xid.
create or replace trigger set_changed before update on reactor.steps
    for each row when (new.changed_xid <> txid_current()) execute function reactor.set_changed();

-- A trigger with transition tables can be neither for several events nor for named columns.
create or replace trigger after_update after update on reactor.jobs
    referencing new table as updated
    for each statement execute function reactor.after_jobs_updated();

-- In place of a foreign key: tables/logs.sql.
create or replace trigger remove_logs after delete on reactor.jobs
    referencing old table as deleted for each statement execute function reactor.remove_logs();
create or replace trigger remove_all_logs after truncate on reactor.jobs
    for each statement execute function reactor.remove_logs();

create or replace trigger before_insert before insert on reactor.dependencies
    for each row when (new.needs is null or new.resolved is not null) execute function reactor.complete_dependency();
create or replace trigger check_dependencies after insert on reactor.dependencies
    referencing new table as inserted for each statement execute function reactor.check_dependencies();
-- Only edges that are not met: a prune deletes none of them.
create or replace trigger check_lost_need after delete on reactor.dependencies
    for each row when (old.resolved is not true) execute function reactor.check_lost_need();
-- At the producer's commit, for all edges of the transaction: functions/connect_dependencies.sql.
create constraint trigger connect_dependencies after insert or update on reactor.connecting
    deferrable initially deferred for each row execute function reactor.connect_dependencies();

create or replace trigger after_write after insert or update on reactor.steps
    for each statement execute function reactor.after_steps_written();

-- Resuming a queue and the end of draining make jobs runnable.
create or replace trigger after_write after insert or update or delete on reactor.queues
    for each statement execute function reactor.after_settings_changed();
create or replace trigger after_write after update on reactor.settings
    for each statement execute function reactor.after_settings_changed();

create or replace trigger set_check_payloads after insert or update of check_payloads on reactor.settings
    for each row execute function reactor.set_check_payloads();

-- functions/limits.sql
create or replace trigger before_change
    before update of queue, job_type, lane, max_running, rate, period, burst on reactor.limits
    for each row execute function reactor.before_limit_changed();
create or replace trigger after_write
    after insert or delete or update of queue, job_type, lane, max_running, rate, period, burst on reactor.limits
    for each row execute function reactor.after_limit_changed();
create or replace trigger set_limit after insert or delete or update of name, max_running on reactor.queues
    for each row execute function reactor.after_max_running_changed();

create or replace trigger before_change before update of job_type, payload, queue, priority, scope, exclusive, tags,
    max_attempts, timeout_seconds, cron, every, timezone, enabled, catch_up on reactor.schedules
    for each row execute function reactor.before_schedule_changed();
create or replace trigger after_write after insert or update on reactor.schedules
    for each row execute function reactor.after_schedules_changed();
