"""What a worker process has counted, as metrics."""

from collections.abc import Iterator, Mapping
from typing import Any

from reactor.counts import Histogram
from reactor_http.measure import Measure

_COUNTERS = {
    "claims": ("claims", "Claims made, one statement each."),
    "wasted_claims": ("empty_claims", "Claims that brought no job."),
    "claimed": ("claimed_jobs", "Jobs that claims brought."),
    "missed_wakes": ("missed_wakes", "Polls that found work which no notification had told of."),
    "ended": ("attempts", "Attempts that ended, however they did."),
    "failed": ("failed_attempts", "Attempts that ended in an error, or failed for good."),
    "retries": ("retries", "Failed attempts after which the job was put back."),
    "stale": ("preemptions", "Attempts whose job was cancelled or taken from them."),
    "reconnects": ("listener_reconnects", "How often the listener had to connect anew."),
}


def worker_metrics(pod: str, worker: str, counts: Mapping[str, Any]) -> list[Measure]:
    """None for what is not understood: another version may have written it."""
    try:
        return list(_measures({"pod": pod, "worker": worker}, counts))
    except (KeyError, TypeError, ValueError, AttributeError):
        return []


def _measures(labels: dict[str, str], counts: Mapping[str, Any]) -> Iterator[Measure]:
    for key, (name, text) in _COUNTERS.items():
        yield Measure(f"reactor_worker_{name}", text, "counter", int(counts[key]), labels)
    wakes = "Times that the worker was told to look for work, by what told it."
    for by, key in (("notification", "wakes"), ("poll", "polls")):
        yield Measure("reactor_worker_wakes", wakes, "counter", int(counts[key]), labels | {"by": by})
    for state, n in counts["states"].items():
        text = "Attempts by the state they left their job in, once that was committed."
        yield Measure("reactor_worker_settled", text, "counter", int(n), labels | {"state": str(state)})
    text = "Endings that were written in one commit."
    batches = _histogram(counts["batches"]["bounds"], counts["batches"])
    yield Measure("reactor_worker_settle_batch_size", text, "histogram", batches, labels)
    durations = counts["durations"]
    for job_type, told in durations["types"].items():
        text = "How long attempts took, from their handler's start to its end."
        histogram = _histogram(durations["bounds"], told)
        name = "reactor_worker_attempt_duration_seconds"
        yield Measure(name, text, "histogram", histogram, labels | {"job_type": str(job_type)})
    if counts["is_listening"] is not None:
        text = "Whether the worker hears notifications; 0: it works by polling alone."
        yield Measure("reactor_worker_listening", text, "gauge", int(counts["is_listening"]), labels)
    if counts["heard_at"] is not None:
        text = "When the worker heard the last notification."
        name = "reactor_worker_last_notification_timestamp_seconds"
        yield Measure(name, text, "gauge", float(counts["heard_at"]), labels)


def _histogram(bounds: list[float], told: Mapping[str, Any]) -> Histogram:
    histogram = Histogram([float(bound) for bound in bounds])
    histogram.merge_counts([int(n) for n in told["counts"]], float(told["sum"]))
    return histogram
