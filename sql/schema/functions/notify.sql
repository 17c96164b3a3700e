-- Doorbells. NOTIFY takes a lock of the whole server through commit and wakes every listener, so a storm of commits must
-- not notify once each. A sequence is shared by all transactions at once: it holds the millisecond of the last ring, and
-- whoever finds that recent does not ring again. A hint is all a notification is; the rows tell what there is to do.

create sequence reactor.jobs_bell minvalue 0 start 0;
comment on sequence reactor.jobs_bell is 'When the channel reactor_jobs was last notified, in milliseconds.';
create sequence reactor.feed_bell minvalue 0 start 0;
comment on sequence reactor.feed_bell is 'When the channel reactor_feed was last notified, in milliseconds.';

create function reactor.ring(bell regclass, channel text, silence_ms int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    now_ms bigint := date_part('epoch', clock_timestamp()) * 1000;
    since_ms bigint := now_ms - pg_sequence_last_value(bell);
begin
    -- NULL: never rung. Far in the future: the clock was set back. (A millisecond or two in the future is somebody who
    -- rang between our two looks; to ring again for that would cost a third of all inserts in a storm.)
    if since_ms is null or since_ms >= silence_ms or since_ms < -1000 then
        perform setval(bell, now_ms);
        perform pg_notify(channel, '');
    end if;
end
$$;

-- There are new jobs, or something may be runnable now: wakes pods and feeds, at most once in 10 ms.
create function reactor.ring_jobs() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.ring('reactor.jobs_bell', 'reactor_jobs', 10);
end
$$;

-- Something that is shown has changed: wakes the feeds, at most once in 20 ms.
create function reactor.ring_feed() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.ring('reactor.feed_bell', 'reactor_feed', 20);
end
$$;

-- Producers' transactions ring at commit: one that rang earlier and stayed open would leave its neighbours, who found the
-- bell rung, with nobody woken. Only the first row of a transaction queues the event; a transaction-local setting notes
-- that (a rolled-back savepoint takes the note back together with the event). The engine's own transactions are short and
-- ring when they write (consequences.sql).
create function reactor.first_insert() returns boolean
language plpgsql as $$
begin
    return case when pg_catalog.current_setting('reactor.inserted', true) = 'yes' then false
        else pg_catalog.set_config('reactor.inserted', 'yes', true) is not null end;
end
$$;

-- The same as ring_jobs, written out: every lone insert pays for each call within a call.
create function reactor.after_insert() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    now_ms bigint := date_part('epoch', clock_timestamp()) * 1000;
    since_ms bigint := now_ms - pg_sequence_last_value('reactor.jobs_bell');
begin
    if since_ms is null or since_ms >= 10 or since_ms < -1000 then
        perform setval('reactor.jobs_bell', now_ms);
        perform pg_notify('reactor_jobs', '');
    end if;
    return null;
end
$$;

create constraint trigger after_insert after insert on reactor.jobs
    deferrable initially deferred for each row when (reactor.first_insert()) execute function reactor.after_insert();

create function reactor.after_steps_written() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.ring_feed();
    return null;
end
$$;
create trigger after_write after insert or update on reactor.steps
    for each statement execute function reactor.after_steps_written();

-- A queue that was resumed or got a higher limit, and the end of draining, make jobs runnable too.
create function reactor.after_gates_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.ring_jobs();
    return null;
end
$$;
create trigger after_write after insert or update or delete on reactor.queues
    for each statement execute function reactor.after_gates_changed();
create trigger after_write after update on reactor.settings
    for each statement execute function reactor.after_gates_changed();
