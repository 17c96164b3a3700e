-- Who may do what. Can be run again: functions are executable only by the roles named here.
revoke all on all functions in schema reactor from public;
revoke all on all tables in schema reactor from public;
grant usage on schema reactor to reactor_worker, reactor_producer, reactor_viewer;
grant select on reactor.alembic_version to reactor_worker, reactor_producer, reactor_viewer;

-- Checks, the conditions of triggers and the rules for new jobs run as the user who writes the row.
grant execute on function
    reactor.refuse, reactor.is_payload, reactor.check_payload, reactor.is_name, reactor.check_name, reactor.is_key,
    reactor.check_key, reactor.is_priority, reactor.check_priority, reactor.is_max_attempts,
    reactor.check_max_attempts, reactor.is_timeout, reactor.check_timeout, reactor.are_tags, reactor.check_tags,
    reactor.is_meta, reactor.check_meta, reactor.check_submitted_by, reactor.is_delivery, reactor.check_delivery,
    reactor.is_valid, reactor.check_job, reactor.may_write_engine_columns,
    reactor.phase, reactor.is_plain, reactor.complete, reactor.unless_past, reactor.next_key_reuse,
    reactor.time_ordered_uuid, reactor.sees_job, reactor.is_lane, reactor.check_lane, reactor.is_ready, reactor.arrive,
    reactor.checks_payloads, reactor.check_job_payload, reactor.job_complaints, reactor.payload_complaints
    to reactor_producer, reactor_worker;
-- For currval and lastval, by which some drivers ask for the id of an inserted row.
grant select on sequence reactor.jobs_id_seq to reactor_producer, reactor_worker;

-- Producers insert jobs with any column, as ORMs do (functions/insert_rules.sql says what becomes of it), and read
-- their own. Of the jobs of others they see what reactor.job_states shows.
grant select, insert on reactor.jobs, reactor.dependencies to reactor_producer;
grant insert on reactor.new_jobs to reactor_producer, reactor_worker;
-- What producers need to check a payload, and to know whether a pod would run the job. The types, schemas and queues of
-- all applications are readable.
grant select on reactor.job_types, reactor.live_workers to reactor_producer, reactor_worker, reactor_viewer;
grant select on reactor.job_states to reactor_producer, reactor_worker, reactor_viewer;
grant execute on function
    reactor.submit(text, jsonb, uuid, text, bigint, timestamptz, bigint, double precision, text[], text, boolean, text,
        text, jsonb, text, text, text[]),
    reactor.submit(varchar, json, uuid, text, bigint, timestamptz, bigint, double precision, text[], text, boolean,
        text, text, json, text, text, text[]),
    reactor.submit_many, reactor.submit_pipeline, reactor.insert_jobs, reactor.insert_dependencies,
    reactor.find_exclusive, reactor.find_key_holder, reactor.as_list, reactor.parent, reactor.count_children,
    reactor.submitted_children, reactor.add_steps, reactor.submit_checked, reactor.find_complaints, reactor.is_key_held
    to reactor_producer, reactor_worker;

grant select, insert, update, delete on reactor.jobs to reactor_worker;
grant select, insert, update (resolved) on reactor.dependencies to reactor_worker;
grant select, insert, update, delete on reactor.unresolved, reactor.retries, reactor.retry_parts to reactor_worker;
grant select, insert, update, delete on reactor.steps, reactor.attempts, reactor.workers, reactor.queues,
    reactor.schedules, reactor.job_types, reactor.limits, reactor.lines, reactor.arrivals, reactor.departures,
    reactor.places, reactor.rates, reactor.freed_scopes, reactor.claims to reactor_worker;
grant select, update on reactor.settings, reactor.scope_locks, reactor.limit_locks to reactor_worker;
grant select, insert on reactor.archive to reactor_worker;
grant select, insert (who, what, target, came_from, details) on reactor.audit to reactor_worker;
grant execute on function
    reactor.chain, reactor.inherit, reactor.waited, reactor.queued,
    reactor.claim, reactor.claim_job, reactor.ready_kinds,
    reactor.share_batch,
    reactor.claim_limited, reactor.open_ready_kinds, reactor.open_kinds, reactor.line_buckets, reactor.leave_lines,
    reactor.limit_bucket, reactor.limits_of, reactor.room, reactor.lock_limits, reactor.charge_limits,
    reactor.count_running,
    reactor.take_news, reactor.may_serve_lines, reactor.has_lines, reactor.next_opening, reactor.notify_places,
    reactor.leave_places, reactor.repair_lines,
    reactor.forget_claims, reactor.start_attempts, reactor.take_scopes, reactor.settle, reactor.refund,
    reactor.scope_bucket, reactor.lock_scopes, reactor.unpark, reactor.free_scopes, reactor.free_more_scopes,
    reactor.notify_jobs,
    reactor.lock_jobs, reactor.lock_predecessors, reactor.recompute_dependencies, reactor.resolve_ended,
    reactor.resolve_edges, reactor.resolve_dependencies, reactor.resolve_more, reactor.is_needed,
    reactor.cancel, reactor.retry, reactor.retry_more, reactor.start_over, reactor.restore_dependants,
    reactor.release_suspended, reactor.suspend_jobs, reactor.find_refused, reactor.forget_unresolved,
    reactor.add_retry_parts,
    reactor.is_in_contact, reactor.return_time, reactor.expire_workers, reactor.sweep, reactor.repair_waiting,
    reactor.insert_logs, reactor.write_logs,
    reactor.prune, reactor.prune_part, reactor.prune_whole, reactor.remove_jobs, reactor.last_ended,
    reactor.is_prunable, reactor.create_archive_partition
    to reactor_worker;

grant select, insert, delete on reactor.logs to reactor_worker;
grant select on all tables in schema reactor to reactor_viewer;
grant select on reactor.pipelines, reactor.workload, reactor.held_jobs, reactor.limit_rules to reactor_worker;
grant execute on function
    reactor.pipeline_state, reactor.epoch, reactor.began_at, reactor.due_at, reactor.durations
    to reactor_worker, reactor_viewer;
-- Called by reactor.workload, and by the statement that says why a job waits.
grant execute on function reactor.limits_of, reactor.room to reactor_viewer;
