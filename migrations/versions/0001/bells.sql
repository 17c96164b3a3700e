-- Doorbells. NOTIFY takes a lock of the whole server through commit and wakes every listener, so a storm of commits must
-- not notify once each. A sequence is shared by all transactions at once: it holds the millisecond of the last ring, and
-- whoever finds that recent does not ring again. A hint is all a notification is; the rows tell what there is to do.

create sequence reactor.jobs_bell minvalue 0 start 0;
comment on sequence reactor.jobs_bell is 'When the channel reactor_jobs was last notified, in milliseconds.';
create sequence reactor.feed_bell minvalue 0 start 0;
comment on sequence reactor.feed_bell is 'When the channel reactor_feed was last notified, in milliseconds.';

create function reactor.ring_jobs() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    now_ms bigint := extract(epoch from clock_timestamp()) * 1000;
    last_ms bigint;
begin
    select b.last_value into last_ms from reactor.jobs_bell b;
    -- A last ring in the future: the clock was set back.
    if now_ms - last_ms >= 5 or now_ms < last_ms then
        perform setval('reactor.jobs_bell', now_ms);
        perform pg_notify('reactor_jobs', '');
    end if;
    return null;
end
$$;

create function reactor.ring_feed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    now_ms bigint := extract(epoch from clock_timestamp()) * 1000;
    last_ms bigint;
begin
    select b.last_value into last_ms from reactor.feed_bell b;
    if now_ms - last_ms >= 20 or now_ms < last_ms then
        perform setval('reactor.feed_bell', now_ms);
        perform pg_notify('reactor_feed', '');
    end if;
    return null;
end
$$;

-- Rung at commit: a transaction that rang earlier and stays open would leave its neighbours, who found the bell rung, with
-- nobody woken. Only the first row of a transaction queues the event: the condition notes in a transaction-local setting
-- that it is queued (a rolled-back savepoint takes the note back with the event).
create constraint trigger ring_jobs_on_insert after insert on reactor.jobs
    deferrable initially deferred for each row
    when (case when current_setting('reactor.jobs_rung', true) = 'yes' then false
        else set_config('reactor.jobs_rung', 'yes', true) = 'yes' end)
    execute function reactor.ring_jobs();

create constraint trigger ring_jobs_on_update after update on reactor.jobs
    deferrable initially deferred for each row
    when (case when new.state <> 'pending' or new.parked or (old.state = 'pending' and not old.parked
            and old.run_after is not distinct from new.run_after) then false
        when current_setting('reactor.jobs_rung', true) = 'yes' then false
        else set_config('reactor.jobs_rung', 'yes', true) = 'yes' end)
    execute function reactor.ring_jobs();

create constraint trigger ring_feed after insert or update on reactor.jobs
    deferrable initially deferred for each row
    when (case when current_setting('reactor.feed_rung', true) = 'yes' then false
        else set_config('reactor.feed_rung', 'yes', true) = 'yes' end)
    execute function reactor.ring_feed();

create constraint trigger ring_feed after insert or update on reactor.steps
    deferrable initially deferred for each row
    when (case when current_setting('reactor.feed_rung', true) = 'yes' then false
        else set_config('reactor.feed_rung', 'yes', true) = 'yes' end)
    execute function reactor.ring_feed();
