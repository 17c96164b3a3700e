-- A schedule whose times were changed, or that is enabled again, starts anew from now. The engine sets none of these columns:
-- whoever does may have put right what was wrong.
create function reactor.before_schedule_changed() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.error := null;
    if ((new.cron, new.every, new.timezone) is distinct from (old.cron, old.every, old.timezone) or new.enabled > old.enabled)
        and new.next_run_at is not distinct from old.next_run_at
    then
        new.next_run_at := null;
    end if;
    return new;
end
$$;
create trigger before_change before update of job_type, payload, queue, priority, scope, exclusive, tags, max_attempts,
    timeout_seconds, cron, every, timezone, enabled, catch_up on reactor.schedules
    for each row execute function reactor.before_schedule_changed();

-- A schedule that was written by hand is noticed at once. Always, without a bell: they change rarely.
create function reactor.after_schedules_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_notify('reactor_schedules', '');
    return null;
end
$$;
create trigger after_write after insert or update on reactor.schedules
    for each row execute function reactor.after_schedules_changed();
