-- The doorbell. NOTIFY takes a lock of the whole server until commit and wakes every listener, so a storm of commits
-- must not notify once each. A sequence holds the millisecond of the last notification; a transaction that finds it
-- recent does not notify again. A notification is only a hint: receivers read the tables, and read them again shortly
-- after.

create or replace function reactor.notify_once(last_notified regclass, channel text, quiet_ms int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    now_ms bigint := date_part('epoch', clock_timestamp()) * 1000;
    since_ms bigint := now_ms - pg_sequence_last_value(last_notified);
begin
    -- NULL: never notified. Far in the future: the clock was set back. (A millisecond or two in the future means that
    -- another session notified between our two readings; notifying again for that costs a third of all inserts in a
    -- storm.)
    if since_ms is null or since_ms >= quiet_ms or since_ms < -1000 then
        perform setval(last_notified, now_ms);
        perform pg_notify(channel, '');
    end if;
end
$$;
comment on function reactor.notify_once is 'Notifies a channel unless it was notified less than quiet_ms ago.';

-- New or newly runnable jobs: wakes pods and feeds, at most once in 10 ms.
create or replace function reactor.notify_jobs() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.notify_once('reactor.jobs_notified_at', 'reactor_jobs', 10);
end
$$;

-- Any other change that streams show: wakes feeds, at most once in 20 ms.
create or replace function reactor.notify_feed() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.notify_once('reactor.feed_notified_at', 'reactor_feed', 20);
end
$$;

-- Producers' transactions notify at commit. If one notified earlier and stayed open, its neighbours would find the
-- doorbell recent and commit without waking anyone. Only the first row of a transaction queues the deferred trigger; a
-- setting that holds the transaction's number records that (a rolled-back savepoint undoes the record together with the
-- trigger event). The engine's own transactions are short and notify when they write (after_update.sql).
-- Repeats notify_jobs inline: a nested call would slow every single insert.
create or replace function reactor.after_insert() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    now_ms bigint := date_part('epoch', clock_timestamp()) * 1000;
    since_ms bigint := now_ms - pg_sequence_last_value('reactor.jobs_notified_at');
begin
    if since_ms is null or since_ms >= 10 or since_ms < -1000 then
        perform setval('reactor.jobs_notified_at', now_ms);
        perform pg_notify('reactor_jobs', '');
    end if;
    return null;
end
$$;

create or replace function reactor.after_steps_written() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.notify_feed();
    return null;
end
$$;

create or replace function reactor.after_limits_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.notify_jobs();
    return null;
end
$$;
