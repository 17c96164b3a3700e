-- The doorbell. NOTIFY takes a lock of the whole server until commit and wakes every listener, so a storm of commits
-- must not notify once each. Sequences hold the millisecond of the last notification and its transaction; a transaction
-- that finds it recent does not notify again. A notification is only a hint: receivers read the tables, and read them
-- again shortly after.
--
-- A sequence changes immediately, a notification is sent at commit, and a rollback withdraws only the notification. So
-- the last notification counts if its transaction has committed, and not if that was rolled back. While the transaction
-- is in progress, it counts too: in a storm the others would otherwise all notify, and their commits would wait for
-- each other. This is safe if it is about to commit and nothing can fail any more:
--
-- - Transactions that may stay open notify as the last thing of their commit. Deferred triggers run in the order in
--   which they were queued, also those that are queued meanwhile: an insert into reactor.wakeups queues one behind
--   all others (the producer's own constraints, for example), and that one decides and notifies.
-- - After a notification was found rolled back, those in progress don't count for 10 seconds. A producer that notifies
--   (by SET CONSTRAINTS) and rolls back in a loop silences the others at most once in that time.

-- Whether the channel was notified less than quiet_ms ago.
create or replace function reactor.is_notified(
    notified_at regclass, notified_by regclass, refused_at regclass, quiet_ms int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    now_ms bigint := date_part('epoch', clock_timestamp()) * 1000;
    since_ms bigint := now_ms - pg_sequence_last_value(notified_at);
    -- Read in this order, written in the other: a recent time never comes with an older transaction.
    by_xid bigint := pg_sequence_last_value(notified_by);
    status text;
    refused_ms bigint;
begin
    -- NULL: never notified. Far in the future: the clock was set back. (A millisecond or two in the future means that
    -- another session notified between our two readings; notifying again for that costs a third of all inserts in a
    -- storm.)
    if since_ms is null or since_ms >= quiet_ms or since_ms <= -1000 then
        return false;
    end if;
    if by_xid = txid_current() then
        return true;
    end if;
    -- After a failover to a server with another clock, the transaction may be one that this server does not know.
    if by_xid < txid_current() or by_xid < txid_snapshot_xmax(txid_current_snapshot()) then
        status := txid_status(by_xid);
    end if;
    if status = 'in progress' then
        refused_ms := now_ms - pg_sequence_last_value(refused_at);
        return refused_ms is null or refused_ms not between -1000 and 10000;
    elsif status = 'aborted' then
        perform setval(refused_at, now_ms);
    end if;
    return coalesce(status = 'committed', false);
end
$$;
comment on function reactor.is_notified is
    'Whether a channel was notified less than quiet_ms ago by a transaction that has committed or is about to.';

-- Notifies a channel unless it was notified less than quiet_ms ago.
create or replace function reactor.notify_once(
    notified_at regclass, notified_by regclass, refused_at regclass, channel text, quiet_ms int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not reactor.is_notified(notified_at, notified_by, refused_at, quiet_ms) then
        -- A rollback to a savepoint withdraws the notification too, so the subtransaction counts.
        perform setval(notified_by, reactor.notify_at_end(null));
        perform setval(notified_at, (date_part('epoch', clock_timestamp()) * 1000)::bigint);
        perform pg_notify(channel, '');
    end if;
end
$$;
comment on function reactor.notify_once is 'Notifies a channel unless it was notified less than quiet_ms ago.';

create or replace function reactor.notify_jobs_once() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.notify_once('reactor.jobs_notified_at', 'reactor.jobs_notified_by', 'reactor.jobs_refused_at',
        'reactor_jobs', 10);
end
$$;

create or replace function reactor.notify_feed_once() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.notify_once('reactor.feed_notified_at', 'reactor.feed_notified_by', 'reactor.feed_refused_at',
        'reactor_feed', 20);
end
$$;

-- Queues a notification for the end of the transaction. Returns the number of the transaction, or of the current
-- subtransaction, which only a written row tells. NULL: queues nothing.
create or replace function reactor.notify_at_end(channel text) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    place tid;
    current_xid bigint;
begin
    insert into reactor.wakeups values (channel) returning ctid, xmin::text::bigint into place, current_xid;
    delete from reactor.wakeups w where w.ctid = place;
    -- A row has the lower half of the number, and a subtransaction's is higher than its transaction's.
    return txid_current() + ((current_xid - (txid_current() & 4294967295)) & 4294967295);
end
$$;
comment on function reactor.notify_at_end is 'Queues a notification of a channel for the end of the transaction.';

-- New or newly runnable jobs: wakes pods and feeds, at most once in 10 ms. A transaction whose last
-- statement this is may set reactor.notify_now; it saves the queue, and with it some 15 µs.
create or replace function reactor.notify_jobs() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('reactor.notify_now', true) = 'on' then
        perform reactor.notify_jobs_once();
    else
        perform reactor.notify_at_end('reactor_jobs');
    end if;
end
$$;

-- Any other change that streams show: wakes feeds, at most once in 20 ms.
create or replace function reactor.notify_feed() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('reactor.notify_now', true) = 'on' then
        perform reactor.notify_feed_once();
    else
        perform reactor.notify_at_end('reactor_feed');
    end if;
end
$$;

-- Runs at the end of the transaction.
create or replace function reactor.after_wakeup() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if new.channel = 'reactor_feed' then
        perform reactor.notify_feed_once();
        return null;
    end if;
    -- After SET CONSTRAINTS IMMEDIATE, rows that follow queue it again.
    if pg_sequence_last_value('reactor.jobs_queued_by') = txid_current() then
        perform setval('reactor.jobs_queued_by', 0);
    end if;
    perform reactor.notify_jobs_once();
    return null;
end
$$;

-- For each row, at the producer's commit. All that the rows after the first rely on is in sequences: a setting, as a
-- note that the transaction has queued its notification, could be forged by the producer.
create or replace function reactor.after_insert() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- The common case of is_notified: recent, and committed. One expression and no variables, since every transaction
    -- compiles what it evaluates. The bounds are those of is_notified, from -1000 to 10 ms. least: the status of a
    -- transaction that this server does not know is an error; our own is in progress.
    if abs(date_part('epoch', clock_timestamp()) * 1000 - pg_sequence_last_value('reactor.jobs_notified_at') + 495)
            < 505
        and txid_status(least(pg_sequence_last_value('reactor.jobs_notified_by'), txid_current())) = 'committed'
    then
        return null;
    end if;
    if pg_sequence_last_value('reactor.jobs_queued_by') = txid_current() then
        return null;
    end if;
    if not reactor.is_notified('reactor.jobs_notified_at', 'reactor.jobs_notified_by', 'reactor.jobs_refused_at', 10)
    then
        -- The number of a subtransaction is never found above: if it is rolled back, so is what it queued. Set first,
        -- because constraints may be immediate: then after_wakeup runs before notify_at_end returns.
        perform setval('reactor.jobs_queued_by', reactor.notify_at_end(null));
        perform reactor.notify_at_end('reactor_jobs');
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

create or replace function reactor.after_settings_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.notify_jobs();
    return null;
end
$$;
