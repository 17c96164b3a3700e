"""Every SQL statement of the engine, read from `sql/` once, so that a missing file fails at import."""

from typing import Final

from reactor.database.assets import folder


def _load(name: str) -> str:
    return (folder("sql") / f"{name}.sql").read_text(encoding="utf-8")


SUBMIT: Final = _load("submit")
SUBMIT_PIPELINE: Final = _load("submit_pipeline")
ACCEPT: Final = _load("accept")
ACCEPT_PIPELINE: Final = _load("accept_pipeline")
KEY_HOLDER: Final = _load("key_holder")
FIND_PIPELINE: Final = _load("find_pipeline")
PIPELINE_JOBS: Final = _load("pipeline_jobs")
UPSTREAM: Final = _load("upstream")

REGISTER_WORKER: Final = _load("register_worker")
HEARTBEAT: Final = _load("heartbeat")
HELD: Final = _load("held")
INHERIT: Final = _load("inherit")
HAND_OVER: Final = _load("hand_over")
CRASHED_BEFORE: Final = _load("crashed_before")
RETIRE_WORKER: Final = _load("retire_worker")

CLAIM: Final = _load("claim")
CLAIM_JOB: Final = _load("claim_job")
CHAIN: Final = _load("chain")
STORED_STEPS: Final = _load("stored_steps")
PLAN_STEPS: Final = _load("plan_steps")
RECORD_STEPS: Final = _load("record_steps")
PROGRESS: Final = _load("progress")
SETTLE: Final = _load("settle")
RELEASE: Final = _load("release")
STOPPED: Final = _load("stopped")
ABANDON: Final = _load("abandon")
SETTLED: Final = _load("settled")
FINISHED: Final = _load("finished")

CANCEL: Final = _load("cancel")
RETRY: Final = _load("retry")
RECOVER: Final = _load("recover")
PAUSE: Final = _load("pause")
LIMIT: Final = _load("limit")
DRAIN: Final = _load("drain")
AUDIT: Final = _load("audit")
WAIT_FOR_LOCKS: Final = _load("wait_for_locks")
STATES: Final = _load("states")
HOLDER: Final = _load("holder")
EXCLUSIVE_HOLDERS: Final = _load("exclusive_holders")

LIST_JOBS: Final = _load("list_jobs")
FIND_JOB: Final = _load("find_job")
LIST_PIPELINES: Final = _load("list_pipelines")
WHOLE_PIPELINE: Final = _load("whole_pipeline")
LIST_WORKERS: Final = _load("list_workers")
LIST_QUEUES: Final = _load("list_queues")
WHY: Final = _load("why")
GATES: Final = _load("gates")
CLOCK: Final = _load("clock")

STATS: Final = _load("stats")
HISTORY: Final = _load("history")
DURATION_HISTORY: Final = _load("duration_history")
WORKLOAD: Final = _load("workload")
WORKER_COUNTS: Final = _load("worker_counts")
VITALS: Final = _load("vitals")
LIMIT_STATEMENTS: Final = _load("limit_statements")

PROMOTE: Final = _load("promote")
SWEEP: Final = _load("sweep")
NEXT_LEASE: Final = _load("next_lease")
FORGET_WORKERS: Final = _load("forget_workers")
UNHANDLED: Final = _load("unhandled")
UNPARK: Final = _load("unpark")
RECONCILE: Final = _load("reconcile")
PRUNE: Final = _load("prune")

DECLARE_SCHEDULES: Final = _load("declare_schedules")
RECONSIDER_SCHEDULES: Final = _load("reconsider_schedules")
DUE_SCHEDULES: Final = _load("due_schedules")
NEXT_SCHEDULE: Final = _load("next_schedule")
RUN_SCHEDULE: Final = _load("run_schedule")
MOVE_SCHEDULE: Final = _load("move_schedule")
LIST_SCHEDULES: Final = _load("list_schedules")
ENABLE_SCHEDULE: Final = _load("enable_schedule")
REMOVE_SCHEDULE: Final = _load("remove_schedule")

SERVER_FACTS: Final = _load("server_facts")
OLDEST_TRANSACTIONS: Final = _load("oldest_transactions")

FEED: Final = _load("feed")
OVERVIEW: Final = _load("overview")
RESTORED: Final = _load("restored")
