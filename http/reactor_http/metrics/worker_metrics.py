"""Metrics of a worker process, from its counts."""

from collections.abc import Iterator, Mapping
from typing import Any

from reactor.counts import Histogram
from reactor_http.measure import Measure

_COUNTERS = {
    "claims": ("claims", "Claim statements executed."),
    "wasted_claims": ("empty_claims", "Claims that returned no job."),
    "claimed": ("claimed_jobs", "Jobs claimed."),
    "missed_wakes": ("missed_wakes", "Polls that found work without a notification."),
    "ended": ("attempts", "Attempts that ended, with any outcome."),
    "failed": ("failed_attempts", "Attempts that ended in an error or a permanent failure."),
    "retries": ("retries", "Failed attempts whose job will be retried."),
    "stale": ("preemptions", "Attempts whose job was cancelled or claimed by another worker."),
    "reconnects": ("listener_reconnects", "Reconnects of the listener."),
}


def worker_metrics(pod: str, worker: str, counts: Mapping[str, Any]) -> list[Measure]:
    """Empty if the counts can't be parsed: another version may have written them."""
    try:
        return list(_measures({"pod": pod, "worker": worker}, counts))
    except (KeyError, TypeError, ValueError, AttributeError):
        return []


def _measures(labels: dict[str, str], counts: Mapping[str, Any]) -> Iterator[Measure]:
    for key, (name, text) in _COUNTERS.items():
        yield Measure(f"reactor_worker_{name}", text, "counter", int(counts[key]), labels)
    text = "Wake-ups of the worker, by cause."
    for by, key in (("notification", "wakes"), ("poll", "polls")):
        yield Measure("reactor_worker_wakes", text, "counter", int(counts[key]), labels | {"by": by})
    for state, n in counts["states"].items():
        text = "Ended attempts by the state of their job, once committed."
        yield Measure("reactor_worker_settled", text, "counter", int(n), labels | {"state": str(state)})
    text = "Ended attempts written in one commit."
    batches = _histogram(counts["batches"]["bounds"], counts["batches"])
    yield Measure("reactor_worker_settle_batch_size", text, "histogram", batches, labels)
    durations = counts["durations"]
    for job_type, counted in durations["types"].items():
        text = "Duration of attempts, from start to end of the handler."
        histogram = _histogram(durations["bounds"], counted)
        name = "reactor_worker_attempt_duration_seconds"
        yield Measure(name, text, "histogram", histogram, labels | {"job_type": str(job_type)})
    text = "Time for which the worker process has not responded, as of the last heartbeat; 0: it responds."
    yield Measure("reactor_worker_silent_seconds", text, "gauge", float(counts.get("silent_seconds", 0)), labels)
    if counts["is_listening"] is not None:
        text = "Whether the worker receives notifications; 0: it polls only."
        yield Measure("reactor_worker_listening", text, "gauge", int(counts["is_listening"]), labels)
    if counts["heard_at"] is not None:
        text = "Time of the worker's last notification."
        name = "reactor_worker_last_notification_timestamp_seconds"
        yield Measure(name, text, "gauge", float(counts["heard_at"]), labels)


def _histogram(bounds: list[float], counted: Mapping[str, Any]) -> Histogram:
    histogram = Histogram([float(bound) for bound in bounds])
    histogram.merge_counts([int(n) for n in counted["counts"]], float(counted["sum"]))
    return histogram
