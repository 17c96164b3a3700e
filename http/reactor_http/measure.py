"""A measurement for /metrics, and its conversion to Prometheus metric families."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from reactor.counts import Histogram


class Measure(NamedTuple):
    name: str
    help: str
    kind: Literal["gauge", "counter", "histogram"]
    value: float | Histogram
    labels: Mapping[str, str] = {}


Source = Callable[[], Iterable[Measure]]


def families(measures: Iterable[Measure]) -> list[Metric]:
    """Grouped by name, as the exposition format requires."""
    found: dict[str, Metric] = {}
    for name, text, kind, value, labels in measures:
        family = found.get(name)
        if isinstance(value, Histogram):
            if family is None:
                family = found[name] = HistogramMetricFamily(name, text, labels=list(labels))
            assert isinstance(family, HistogramMetricFamily)
            family.add_metric(list(labels.values()), _cumulative_buckets(value), value.total)
        else:
            if family is None:
                family_class = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
                family = found[name] = family_class(name, text, labels=list(labels))
            assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
            family.add_metric(list(labels.values()), value)
    return list(found.values())


def _cumulative_buckets(histogram: Histogram) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, n in zip((*map(str, map(float, histogram.bounds)), "+Inf"), histogram.counts, strict=True):
        total += n
        buckets.append((bound, total))
    return buckets
