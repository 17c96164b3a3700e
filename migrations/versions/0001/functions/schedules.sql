-- What follows a change of a schedule.

-- A schedule whose times changed, or that was enabled again, starts over from now. The engine writes none of the
-- columns that fire this trigger, so the author of the change may have fixed the error.
create or replace function reactor.before_schedule_changed() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.error := null;
    if ((new.cron, new.every, new.timezone) is distinct from (old.cron, old.every, old.timezone)
        or new.enabled > old.enabled)
        and new.next_run_at is not distinct from old.next_run_at
    then
        new.next_run_at := null;
    end if;
    return new;
end
$$;

-- Pods notice a change immediately. Without the doorbell, because schedules change rarely.
create or replace function reactor.after_schedules_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_notify('reactor_schedules', '');
    return null;
end
$$;
