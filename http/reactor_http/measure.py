"""One number that a part of this process tells /metrics."""

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
    """As the exposition format wants them: all of one name together."""
    found: dict[str, Metric] = {}
    for name, text, kind, value, labels in measures:
        family = found.get(name)
        if isinstance(value, Histogram):
            if family is None:
                family = found[name] = HistogramMetricFamily(name, text, labels=list(labels))
            assert isinstance(family, HistogramMetricFamily)
            family.add_metric(list(labels.values()), _cumulated(value), value.total)
        else:
            if family is None:
                made = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
                family = found[name] = made(name, text, labels=list(labels))
            assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
            family.add_metric(list(labels.values()), value)
    return list(found.values())


def _cumulated(histogram: Histogram) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    so_far = 0
    for bound, n in zip((*map(str, map(float, histogram.bounds)), "+Inf"), histogram.counts, strict=True):
        so_far += n
        buckets.append((bound, so_far))
    return buckets
