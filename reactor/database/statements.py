"""The SQL statements that Python sends, read from `sql/statements/` once, so that a missing file fails at import.

Grouped by the package that sends them, as their folders are; `sql/README.md` has the rules.
"""

from typing import Final

from reactor.database.assets import folder


def _load(path: str) -> str:
    return (folder("sql") / "statements" / f"{path}.sql").read_text(encoding="utf-8")


# database: connections, migrations, and what several packages send
REPAIR_RESTORED: Final = _load("database/repair_restored")
SET_LOCK_TIMEOUT: Final = _load("database/set_lock_timeout")
CLOCK: Final = _load("database/clock")
TRY_MIGRATION_LOCK: Final = _load("database/try_migration_lock")
TAKE_MIGRATION_LOCK: Final = _load("database/take_migration_lock")
QUOTED_USER: Final = _load("database/quoted_user")
HAS_VERSION_TABLE: Final = _load("database/has_version_table")
CURRENT_REVISION: Final = _load("database/current_revision")
USE_READ_COMMITTED: Final = _load("database/use_read_committed")
SERVER_VERSION: Final = _load("database/server_version")
IS_READ_ONLY: Final = _load("database/is_read_only")
ENCODING: Final = _load("database/encoding")
MIGRATION_FACTS: Final = _load("database/migration_facts")
WAIT_WITHOUT_LIMIT: Final = _load("database/wait_without_limit")
BACKEND_PID: Final = _load("database/backend_pid")
TRANSACTION_TIMEOUT: Final = _load("database/transaction_timeout")
SEND_TEST_NOTIFICATION: Final = _load("database/send_test_notification")

# embedded: the server that we start ourselves
DATABASE_EXISTS: Final = _load("embedded/database_exists")

# client: applications that submit jobs and wait for them
SUBMIT: Final = _load("client/submit")
SUBMIT_PIPELINE: Final = _load("client/submit_pipeline")
SUBMIT_UNLESS_DRAINING: Final = _load("client/submit_unless_draining")
FIND_KEY_HOLDER: Final = _load("client/find_key_holder")
FIND_OUTCOME: Final = _load("client/find_outcome")

# schedules: recurring jobs
DECLARE_SCHEDULES: Final = _load("schedules/declare_schedules")
CLEAR_SCHEDULE_ERRORS: Final = _load("schedules/clear_schedule_errors")
DUE_SCHEDULES: Final = _load("schedules/due_schedules")
NEXT_SCHEDULE: Final = _load("schedules/next_schedule")
RUN_SCHEDULE: Final = _load("schedules/run_schedule")
ADVANCE_SCHEDULE: Final = _load("schedules/advance_schedule")

# lifecycle: claiming, settling and the leases of workers
CLAIM: Final = _load("lifecycle/claim")
CLAIM_JOB: Final = _load("lifecycle/claim_job")
HANDED_OVER_JOBS: Final = _load("lifecycle/handed_over_jobs")
CHAIN: Final = _load("lifecycle/chain")
SETTLE: Final = _load("lifecycle/settle")
ALLOW_LONG_END: Final = _load("lifecycle/allow_long_end")
FIND_SETTLED: Final = _load("lifecycle/find_settled")
COUNT_RELEASES: Final = _load("lifecycle/count_releases")
RELEASE_STOPPED: Final = _load("lifecycle/release_stopped")
RELEASE_WORKER: Final = _load("lifecycle/release_worker")
REPORT_PROGRESS: Final = _load("lifecycle/report_progress")
REPORT_FACTS: Final = _load("lifecycle/report_facts")
FIND_META: Final = _load("lifecycle/find_meta")
PLAN_STEPS: Final = _load("lifecycle/plan_steps")
SETTLE_WITH_LOGS: Final = _load("lifecycle/settle_with_logs")
WRITE_LOGS: Final = _load("lifecycle/write_logs")
RECORD_STEPS: Final = _load("lifecycle/record_steps")
REGISTER_WORKER: Final = _load("lifecycle/register_worker")
HEARTBEAT: Final = _load("lifecycle/heartbeat")
HELD_ATTEMPTS: Final = _load("lifecycle/held_attempts")
RETIRE_WORKER: Final = _load("lifecycle/retire_worker")

# handlers: what handlers read
UPSTREAM: Final = _load("handlers/upstream")
DECLARE_LIMITS: Final = _load("handlers/declare_limits")
PUBLISH_JOB_TYPES: Final = _load("handlers/publish_job_types")

# worker: the process that runs handlers
PROMOTE_DUE: Final = _load("worker/promote_due")
UNHANDLED_TYPES: Final = _load("worker/unhandled_types")
FIND_JOB_TYPE: Final = _load("worker/find_job_type")

# pod: recovery and the sweeper
SWEEP: Final = _load("pod/sweep")
NEXT_LEASE: Final = _load("pod/next_lease")
DELETE_ENDED_WORKERS: Final = _load("pod/delete_ended_workers")
FORGET_CLAIMS: Final = _load("pod/forget_claims")
SEE_JOB_TYPES: Final = _load("pod/see_job_types")
UNPARK_SCOPES: Final = _load("pod/unpark_scopes")
REPAIR_LINES: Final = _load("pod/repair_lines")
RESOLVE_MORE: Final = _load("pod/resolve_more")
REPAIR_WAITING: Final = _load("pod/repair_waiting")
CRASHED_BEFORE: Final = _load("lifecycle/crashed_before")
HAND_OVER: Final = _load("pod/hand_over")

# feed: changes for streams
PIPELINE_CHANGES: Final = _load("feed/pipeline_changes")
OVERVIEW_CHANGES: Final = _load("feed/overview_changes")

# operate: operators' actions
CANCEL: Final = _load("operate/cancel")
RETRY: Final = _load("operate/retry")
KEEP_RETRY: Final = _load("operate/keep_retry")
RETRY_MORE: Final = _load("operate/retry_more")
RECOVER: Final = _load("operate/recover")
PAUSE_QUEUE: Final = _load("operate/pause_queue")
LIMIT_QUEUE: Final = _load("operate/limit_queue")
SET_DRAINING: Final = _load("operate/set_draining")
RECORD_ACTION: Final = _load("operate/record_action")
JOB_STATES: Final = _load("operate/job_states")
JOB_HOLDER: Final = _load("operate/job_holder")
EXCLUSIVE_HOLDERS: Final = _load("operate/exclusive_holders")
PIPELINE_JOBS: Final = _load("operate/pipeline_jobs")
PIPELINE_RETRIES: Final = _load("operate/pipeline_retries")
PRUNE: Final = _load("operate/prune")
LIST_SCHEDULES: Final = _load("operate/list_schedules")
ENABLE_SCHEDULE: Final = _load("operate/enable_schedule")
REMOVE_SCHEDULE: Final = _load("operate/remove_schedule")
LIST_LIMITS: Final = _load("operate/list_limits")
SET_LIMIT: Final = _load("operate/set_limit")
REMOVE_LIMIT: Final = _load("operate/remove_limit")

# queries: read-only questions
LIST_JOBS: Final = _load("queries/list_jobs")
FIND_JOB: Final = _load("queries/find_job")
LIST_LOGS: Final = _load("queries/list_logs")
LIST_PIPELINES: Final = _load("queries/list_pipelines")
FIND_PIPELINE: Final = _load("queries/find_pipeline")
PIPELINE_WITH_JOBS: Final = _load("queries/pipeline_with_jobs")
LIST_JOB_TYPES: Final = _load("queries/list_job_types")
LIST_WORKERS: Final = _load("queries/list_workers")
LIST_QUEUES: Final = _load("queries/list_queues")
WHY: Final = _load("queries/why")
CLAIM_LIMITS: Final = _load("queries/claim_limits")
STATS: Final = _load("queries/stats")
HISTORY: Final = _load("queries/history")
DURATION_HISTORY: Final = _load("queries/duration_history")
WORKLOAD: Final = _load("queries/workload")
WORKER_COUNTS: Final = _load("queries/worker_counts")
SERVER_GAUGES: Final = _load("queries/server_gauges")
SET_STATEMENT_TIMEOUT: Final = _load("queries/set_statement_timeout")

# doctor: diagnosis
SERVER_FACTS: Final = _load("doctor/server_facts")
OLDEST_TRANSACTIONS: Final = _load("doctor/oldest_transactions")

# testing: the test kit
SKIP_DELAYS: Final = _load("testing/skip_delays")
LIST_SESSIONS: Final = _load("testing/list_sessions")
