-- Rules for new jobs. Producers may write any column, because ORMs do: NULL takes the column's default, and what a
-- producer writes to a column of the engine is ignored. Most rows need nothing of this: one inlined expression
-- recognises them.
--
-- The trigger runs as the user who inserts, so that it knows who that is. It has no search_path of its own, which would
-- double its cost; therefore it contains no operators and calls nothing but functions of the schema, whose bodies were
-- parsed when they were created.

-- Those who may update jobs anyway may also insert them in any state: workers, and the owner during a restore.
create or replace function reactor.may_write_engine_columns() returns boolean
language sql stable
return has_table_privilege('reactor.jobs'::regclass, 'update');

-- The columns that producers write. Also for updates by hand.
create or replace function reactor.is_valid(
    job_type text, payload jsonb, queue text, priority smallint, max_attempts int, timeout_seconds real, tags text[],
    scope text, exclusive boolean, idempotency_key text, lane text, meta jsonb, submitted_by text,
    delivery text)
    returns boolean
language sql immutable
return reactor.is_name(job_type) and reactor.is_payload(payload) and reactor.is_name(queue)
    and reactor.is_priority(priority) and reactor.is_max_attempts(max_attempts)
    and reactor.is_timeout(timeout_seconds) and reactor.are_tags(tags) and reactor.is_key(scope)
    and reactor.is_key(idempotency_key) and not (exclusive and scope is null) and reactor.is_lane(lane)
    and reactor.is_meta(meta) and reactor.is_key(submitted_by) and reactor.is_delivery(delivery);

-- Raises the error of what is not valid.
create or replace function reactor.check_job(job reactor.jobs) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.check_name(job.job_type), reactor.check_payload(job.payload), reactor.check_name(job.queue),
        reactor.check_priority(job.priority), reactor.check_max_attempts(job.max_attempts),
        reactor.check_timeout(job.timeout_seconds), reactor.check_tags(job.tags), reactor.check_key(job.scope),
        reactor.check_key(job.idempotency_key), reactor.check_lane(job.lane), reactor.check_meta(job.meta),
        reactor.check_submitted_by(job.submitted_by), reactor.check_delivery(job.delivery);
    if job.exclusive and job.scope is null then
        perform reactor.refuse('reactor: the job is exclusive and has no scope',
            'Set scope to what must not run twice, or leave exclusive false.');
    end if;
end
$$;

-- What a new row needs. True: nothing, as most rows. False: it has options, which must be checked. NULL: it is not
-- complete, because it lacks a default or has something else in a column of the engine. (Short ways first: an
-- identifier needs no regular expression, which takes longer than all the rest; and 100 bytes hold at most six numbers
-- of 131,072 digits, the largest that there are.)
-- Every transaction compiles the expression again, which takes longer than its evaluation. So it has as few functions
-- and operators as possible: NULL where a default belongs makes it NULL, or false, without a test of its own.
create or replace function reactor.is_plain(
    changed_xid bigint, inserted_xid bigint, created_by text, created_at timestamptz, pipeline_id uuid, state text,
    attempts int, children int, waiting_on int, is_current boolean, parked boolean, holds_scope boolean, phase text,
    parent_id bigint, attempt_id uuid, worker_id uuid, locked_by text, locked_at timestamptz, started_at timestamptz,
    finished_at timestamptz,
    broken_by bigint, quota int, progress real, status_message text, result jsonb, error text, step_counts jsonb,
    ready_at timestamptz, requeued_at timestamptz, job_type text, payload jsonb, queue text, priority smallint,
    max_attempts int, timeout_seconds real, tags text[], scope text,
    exclusive boolean, idempotency_key text, run_after timestamptz, lane text, counted boolean, meta jsonb,
    submitted_by text, delivery text, started_once boolean)
    returns boolean
language sql volatile
return case when num_nonnulls(attempt_id, worker_id, locked_by, locked_at, started_at, finished_at, broken_by, quota,
        progress, status_message, result, error, step_counts, ready_at, requeued_at) = 0
    and pipeline_id is not null
    and state = 'pending' and phase = 'ready' and attempts = 0 and children = 0 and waiting_on = 0
    and not (is_current or parked or holds_scope or counted or started_once)
    and changed_xid = txid_current() and inserted_xid = changed_xid
    and created_at >= current_timestamp and created_at <= clock_timestamp()
    and (created_by = current_user and parent_id is null or reactor.may_write_engine_columns())
    then not reactor.checks_payloads()
        and num_nonnulls(max_attempts, timeout_seconds, scope, lane, idempotency_key, run_after, meta, submitted_by,
            delivery) = 0
        and queue = 'default' and priority = 0 and not exclusive and tags = '{}'
        and octet_length(job_type) <= 200
        and (job_type = quote_ident(job_type) or job_type !~ '[[:cntrl:]]|^[[:space:]]|[[:space:]]$|^$')
        and payload @> '{}'
        and (pg_column_size(payload) <= 100 and pg_column_compression(payload) is null
            or octet_length(payload::text) <= 1000000)
    end;

create or replace function reactor.complete(job reactor.jobs) returns reactor.jobs
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    if not reactor.may_write_engine_columns() then
        job.created_by := null;
        job.created_at := null;
        job.state := null;
        job.attempts := null;
        job.children := null;
        job.waiting_on := null;
        job.is_current := null;
        job.parked := null;
        job.counted := null;
        job.started_once := null;
        job.parent_id := null;
        job.attempt_id := null;
        job.worker_id := null;
        job.locked_by := null;
        job.locked_at := null;
        job.started_at := null;
        job.finished_at := null;
        job.broken_by := null;
        job.quota := null;
        job.progress := null;
        job.status_message := null;
        job.result := null;
        job.error := null;
        job.step_counts := null;
        job.ready_at := null;
        job.requeued_at := null;
    end if;
    job.changed_xid := txid_current();
    job.inserted_xid := txid_current();
    job.created_by := coalesce(job.created_by, current_user);
    job.created_at := coalesce(job.created_at, clock_timestamp());
    job.pipeline_id := coalesce(job.pipeline_id, reactor.time_ordered_uuid());
    job.queue := coalesce(job.queue, 'default');
    job.priority := coalesce(job.priority, 0);
    job.exclusive := coalesce(job.exclusive, false);
    job.tags := coalesce(job.tags, '{}');
    job.payload := coalesce(job.payload, '{}');
    job.state := coalesce(job.state, 'pending');
    job.attempts := coalesce(job.attempts, 0);
    job.children := coalesce(job.children, 0);
    job.waiting_on := coalesce(job.waiting_on, 0);
    job.is_current := coalesce(job.is_current, false);
    job.parked := coalesce(job.parked, false);
    job.counted := coalesce(job.counted, false);
    job.started_once := coalesce(job.started_once, false);
    job.holds_scope := job.scope is not null and job.worker_id is not null;
    if job.worker_id is not null then
        insert into reactor.claims (worker_id, job_ids) values (job.worker_id, array[job.id]);
    end if;
    return job;
end
$$;
comment on function reactor.complete is
    'A new job as it is stored: with defaults, and with engine columns as the engine sets them.';

-- NULL, if the time has come: the job belongs into the index of ready jobs, not of scheduled ones. Times that many
-- languages can't hold are never.
create or replace function reactor.unless_past(run_after timestamptz) returns timestamptz
language sql volatile
return case when run_after >= timestamptz '9999-12-31 UTC' then timestamptz 'infinity'
    when run_after > clock_timestamp() then run_after end;

-- Makes a key usable again after its window: the new job has another key_reuse than the one before. That job keeps its
-- row as it is. (Taking the key from it would lock it until the producer commits, and its end would wait.) Of two new
-- jobs at the same time, both find the same number, and the unique index refuses one of them.
create or replace function reactor.next_key_reuse(job_type text, idempotency_key text) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return (
        select case when j.created_at < clock_timestamp() - (select s.idempotency_window from reactor.settings s)
            then coalesce(j.key_reuse, 0) + 1 else j.key_reuse end
        from reactor.jobs j
        where j.job_type = next_key_reuse.job_type and j.idempotency_key = next_key_reuse.idempotency_key
            and j.phase <> 'cancelled'
        order by j.key_reuse desc nulls last limit 1);
end
$$;
comment on function reactor.next_key_reuse is 'The key_reuse of a new job with this key.';

-- Functions, because the trigger contains no operators.
create or replace function reactor.is_ready(phase text) returns boolean
language sql immutable parallel safe return phase = 'ready';

-- Once for each line and transaction.
create or replace function reactor.arrive(queue text, job_type text, lane text, priority smallint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
begin
    insert into reactor.arrivals (queue, job_type, lane, priority, xid)
    select arrive.queue, arrive.job_type, arrive.lane, arrive.priority, txid_current()
    where not exists (
        select from reactor.arrivals a
        where a.queue = arrive.queue and a.job_type = arrive.job_type and a.lane = arrive.lane
            and a.priority = arrive.priority and a.xid = txid_current());
end
$$;
comment on function reactor.arrive is 'Announces that a job of this line is ready (functions/limits.sql).';

-- Stable, although functions that it calls write rows: a volatile one takes a snapshot for every expression. Those
-- functions are volatile themselves, and see what rows before this one wrote.
create or replace function reactor.before_insert() returns trigger
language plpgsql stable as $$
declare
    is_plain boolean := reactor.is_plain(new.changed_xid, new.inserted_xid, new.created_by, new.created_at,
        new.pipeline_id, new.state, new.attempts, new.children, new.waiting_on, new.is_current, new.parked,
        new.holds_scope, new.phase, new.parent_id, new.attempt_id, new.worker_id, new.locked_by, new.locked_at,
        new.started_at, new.finished_at,
        new.broken_by, new.quota, new.progress, new.status_message, new.result, new.error, new.step_counts,
        new.ready_at, new.requeued_at, new.job_type, new.payload, new.queue, new.priority, new.max_attempts,
        new.timeout_seconds, new.tags, new.scope, new.exclusive,
        new.idempotency_key, new.run_after, new.lane, new.counted, new.meta, new.submitted_by, new.delivery,
        new.started_once);
begin
    if is_plain then
        return new;
    end if;
    if is_plain is null or new.queue is null or new.priority is null or new.exclusive is null or new.tags is null
        or new.payload is null
    then
        new := reactor.complete(new);
    end if;
    if not reactor.is_valid(new.job_type, new.payload, new.queue, new.priority, new.max_attempts, new.timeout_seconds,
        new.tags, new.scope, new.exclusive, new.idempotency_key, new.lane, new.meta, new.submitted_by,
        new.delivery)
    then
        perform reactor.check_job(new);
    end if;
    if reactor.checks_payloads() then
        perform reactor.check_job_payload(new.job_type, new.payload);
    end if;
    if new.run_after is not null then
        new.run_after := reactor.unless_past(new.run_after);
    end if;
    new.phase := reactor.phase(new.state, new.run_after, new.parked, new.job_type, new.exclusive);
    if new.idempotency_key is not null then
        new.key_reuse := reactor.next_key_reuse(new.job_type, new.idempotency_key);
    end if;
    if new.lane is not null and reactor.is_ready(new.phase) then
        perform reactor.arrive(new.queue, new.job_type, new.lane, new.priority);
    end if;
    return new;
end
$$;

-- For updates of producers' columns, which are made by hand: the engine writes none of them.
create or replace function reactor.check_update() returns trigger
language plpgsql as $$
begin
    if not reactor.is_valid(new.job_type, new.payload, new.queue, new.priority, new.max_attempts, new.timeout_seconds,
        new.tags, new.scope, new.exclusive, new.idempotency_key, new.lane, new.meta, new.submitted_by,
        new.delivery)
    then
        perform reactor.check_job(new);
    end if;
    return null;
end
$$;
