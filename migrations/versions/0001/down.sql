-- Drops everything that revision 0001 created. The roles stay: they belong to the server, and other databases may use
-- them.
drop view reactor.live_workers, reactor.limit_rules, reactor.held_jobs, reactor.new_jobs, reactor.job_states,
    reactor.pipelines, reactor.workload;
-- Policies and rules for new jobs refer to the table, and the table's triggers to the rules.
drop trigger before_insert on reactor.jobs;
drop policy leave_out_the_id_of_a_job_or_write_default on reactor.jobs;
drop function reactor.before_insert, reactor.complete, reactor.check_job, reactor.is_plain,
    reactor.may_write_engine_columns, reactor.waited, reactor.queued, reactor.durations;
drop table
    reactor.wakeups, reactor.job_types, reactor.audit, reactor.logs, reactor.archive, reactor.schedules,
    reactor.claims,
    reactor.freed_scopes,
    reactor.scope_locks, reactor.limits, reactor.limit_locks, reactor.lines, reactor.arrivals, reactor.departures,
    reactor.places, reactor.rates, reactor.queues, reactor.workers, reactor.attempts, reactor.steps, reactor.unresolved,
    reactor.retry_parts, reactor.retries,
    reactor.connecting, reactor.dependencies, reactor.jobs, reactor.settings;
drop function
    reactor.insert_new_job, reactor.pipeline_state,
    reactor.submit(text, jsonb, uuid, text, bigint, timestamptz, bigint, double precision, text[], text, boolean, text,
        text, jsonb, text, text, text[]),
    reactor.submit(varchar, json, uuid, text, bigint, timestamptz, bigint, double precision, text[], text, boolean,
        text, text, json, text, text, text[]),
    reactor.submit_checked, reactor.find_complaints, reactor.is_key_held, reactor.check_job_payload,
    reactor.checks_payloads, reactor.set_check_payloads, reactor.job_complaints, reactor.payload_complaints,
    reactor.value_complaints, reactor.union_complaints, reactor.member_complaints, reactor.element_complaints,
    reactor.has_only_type_of, reactor.join_complaints, reactor.text_complaint, reactor.number_complaint,
    reactor.format_complaint, reactor.matches, reactor.resolve_schema, reactor.complaint, reactor.type_in_words,
    reactor.has_type_of, reactor.is_of_type,
    reactor.submit_many, reactor.submit_pipeline, reactor.insert_jobs, reactor.insert_dependencies, reactor.parent,
    reactor.count_children, reactor.submitted_children, reactor.add_steps, reactor.end_steps, reactor.count_steps,
    reactor.is_step_name, reactor.due_at, reactor.began_at,
    reactor.chain, reactor.inherit, reactor.claim, reactor.claim_job, reactor.ready_kinds,
    reactor.share_batch,
    reactor.claim_limited, reactor.open_kinds, reactor.line_buckets, reactor.leave_lines,
    reactor.limit_bucket, reactor.limits_of, reactor.room, reactor.lock_limits, reactor.charge_limits,
    reactor.count_running,
    reactor.take_news, reactor.may_serve_lines, reactor.has_lines, reactor.open_ready_kinds, reactor.next_opening,
    reactor.notify_places, reactor.leave_places, reactor.repair_lines, reactor.before_limit_changed,
    reactor.after_limit_changed, reactor.after_max_running_changed, reactor.is_ready, reactor.arrive,
    reactor.forget_claims, reactor.start_attempts, reactor.take_scopes, reactor.settle,
    reactor.refund, reactor.cancel, reactor.retry, reactor.retry_more, reactor.start_over, reactor.restore_dependants,
    reactor.release_suspended, reactor.suspend_jobs, reactor.find_refused, reactor.forget_unresolved,
    reactor.add_retry_parts,
    reactor.sweep, reactor.expire_workers, reactor.is_in_contact, reactor.return_time, reactor.prune,
    reactor.prune_part, reactor.prune_whole, reactor.remove_jobs, reactor.last_ended, reactor.is_prunable,
    reactor.insert_logs, reactor.write_logs, reactor.remove_logs,
    reactor.repair_waiting, reactor.create_archive_partition, reactor.after_jobs_updated, reactor.check_dependencies,
    reactor.connect_dependencies, reactor.sees_job, reactor.find_cycle, reactor.recompute_dependencies,
    reactor.resolve_ended, reactor.resolve_edges, reactor.check_lost_need, reactor.is_needed,
    reactor.resolve_dependencies, reactor.resolve_more, reactor.lock_jobs, reactor.lock_predecessors,
    reactor.free_more_scopes, reactor.free_scopes, reactor.unpark, reactor.lock_scopes, reactor.scope_bucket,
    reactor.check_update, reactor.is_valid, reactor.next_key_reuse,
    reactor.unless_past, reactor.find_exclusive, reactor.find_key_holder, reactor.as_list,
    reactor.complete_dependency, reactor.check_update_by_hand,
    reactor.set_changed, reactor.epoch, reactor.after_settings_changed,
    reactor.before_schedule_changed, reactor.after_schedules_changed, reactor.after_steps_written, reactor.after_insert,
    reactor.notify_feed, reactor.notify_jobs, reactor.after_wakeup, reactor.notify_jobs_once,
    reactor.notify_feed_once, reactor.notify_at_end, reactor.notify_once,
    reactor.is_notified, reactor.time_ordered_uuid;
drop type reactor.claimed;
drop sequence reactor.jobs_notified_at, reactor.jobs_notified_by, reactor.jobs_refused_at, reactor.jobs_queued_by,
    reactor.feed_notified_at, reactor.feed_notified_by, reactor.feed_refused_at,
    reactor.places_notified_at, reactor.places_notified_by, reactor.places_refused_at;
drop function
    reactor.phase, reactor.check_delivery, reactor.is_delivery, reactor.check_submitted_by, reactor.check_meta,
    reactor.is_meta, reactor.check_tags,
    reactor.are_tags, reactor.check_timeout, reactor.is_timeout,
    reactor.check_max_attempts,
    reactor.is_max_attempts, reactor.check_priority, reactor.is_priority, reactor.check_key, reactor.is_key,
    reactor.check_lane, reactor.is_lane,
    reactor.check_name, reactor.is_name, reactor.check_payload, reactor.is_payload;
drop function reactor.refuse;
revoke select on reactor.alembic_version from reactor_worker, reactor_producer, reactor_viewer;
revoke usage on schema reactor from reactor_worker, reactor_producer, reactor_viewer;
comment on table reactor.alembic_version is null;
comment on schema reactor is null;
