-- The current schema, and the order in which its files are applied. `psql -f schema.sql` builds it in an empty schema
-- `reactor`; databases are built by the frozen copies of these files in migrations/versions.
--
-- Tables. A row in `jobs` is a job; `dependencies` are the edges of pipelines, `unresolved` what is left to do for
-- those of ended jobs, `retries` what is left of large retries, `connecting` notes transactions that insert edges.
-- `steps` are the units of work inside a job, `attempts` the attempts that ended without finishing their job, `logs`
-- what handlers log. `workers` has a row per worker process with its lease, `claims` a row per claim with the jobs that
-- its worker may hold, `job_types` one per type that workers have handlers for. `queues` has a row per queue that is
-- paused or limited, `limits` one per limit, `scope_locks` the rows that scopes are locked by, `freed_scopes` scopes
-- whose jobs are still to be unparked, `settings` one row of cluster-wide settings. `schedules` insert jobs, `archive`
-- keeps pruned ones, `audit` records what operators do.
--
-- State machine. waiting -> pending -> running -> completed, partial, failed or cancelled. An insert makes a job
-- pending, or waiting if its transaction also inserts dependencies (connect_dependencies). claim makes pending jobs
-- running; settle ends attempts, and a failed one with attempts left makes its job pending again. cancel ends jobs in
-- any unfinished state, sweep takes back the jobs of dead workers, retry starts finished jobs over. after_update runs
-- after each of them: it resolves dependencies, frees scopes and notifies. It resolves a limited number of them;
-- resolve_more does the rest.
--
-- Fence. Each claim draws a new `attempt_id`. Every later write of the attempt names the job's id, this attempt_id and
-- the state running; if another attempt, a cancel or a sweep came first, it changes no row.
-- `worker_id` is set while a handler may be running. It outlives a cancel, and so does the job's hold on its scope.
--
-- Producers. Any column may be named in an insert; a trigger checks the row, replaces NULL by defaults and resets what
-- belongs to the engine (insert_rules). Row-level security shows a producer the jobs that its role created (policies).
--
-- Doorbell. A notification only wakes: it has no payload, and receivers read the tables. A sequence holds the time of
-- the last notification, so that a storm of commits notifies once in 10 ms (notify).
--
-- Phases. Indexes know of a job what `phase` says, and a completion does not change it (phase). Claims walk the index
-- of ready jobs; jobs that can't run yet are outside it: scheduled (until promote_due), waiting, or parked behind
-- another job of their scope (scopes).
--
-- Limits. Jobs with a lane are in the index jobs_lanes instead, and claims see them by their lines. Claims from kinds
-- with limits or lanes take turns, by locks that are only tried (limits).
--
-- Streams. `changed_xid` holds the transaction that last wrote a row. Together with the reader's snapshot it identifies
-- the rows that the reader has not seen (change_tracking).
--
-- Lock order. 1. rows of running jobs, by id; 2. rows of waiting and pending jobs, by id, in one statement; 3. rows of
-- dependencies; 4. rows of steps. Claims wait for nothing: they skip what is locked. Nothing waits for the lock of a
-- scope or of a limited queue. All writes assume READ COMMITTED.

\ir checks.sql
\ir functions/phase.sql
\ir types.sql
\ir sequences.sql
\ir tables/alembic_version.sql
\ir tables/settings.sql
\ir tables/jobs.sql
\ir tables/dependencies.sql
\ir tables/connecting.sql
\ir tables/unresolved.sql
\ir tables/retries.sql
\ir tables/steps.sql
\ir tables/attempts.sql
\ir tables/logs.sql
\ir tables/workers.sql
\ir views/live_workers.sql
\ir tables/job_types.sql
\ir tables/queues.sql
\ir tables/scopes.sql
\ir tables/claims.sql
\ir tables/limits.sql
\ir views/held_jobs.sql
\ir tables/schedules.sql
\ir tables/archive.sql
\ir tables/audit.sql
\ir tables/wakeups.sql
\ir functions/durations.sql
\ir functions/notify.sql
\ir functions/change_tracking.sql
\ir functions/json_schema.sql
\ir functions/job_types.sql
\ir functions/insert_rules.sql
\ir functions/dependencies.sql
\ir functions/connect_dependencies.sql
\ir functions/scopes.sql
\ir functions/steps.sql
\ir functions/limits.sql
\ir functions/lines.sql
\ir functions/after_update.sql
\ir functions/submit.sql
\ir functions/submit_pipeline.sql
\ir functions/chain.sql
\ir functions/kinds.sql
\ir functions/claim_limited.sql
\ir functions/claim.sql
\ir functions/settle.sql
\ir functions/logs.sql
\ir functions/cancel.sql
\ir functions/retry.sql
\ir functions/sweep.sql
\ir functions/prune.sql
\ir functions/repair_waiting.sql
\ir functions/repair_lines.sql
\ir functions/schedules.sql
\ir triggers.sql
\ir views/new_jobs.sql
\ir views/job_states.sql
\ir views/pipelines.sql
\ir views/workload.sql
\ir policies.sql
\ir privileges.sql
