"""Metrics of the open streams of this process and of the feed behind them."""

from collections.abc import Iterator

from reactor_http.measure import Measure
from reactor_http.stream.streams import Streams


def stream_metrics(streams: Streams) -> Iterator[Measure]:
    """Includes the feed only once the first stream has started it."""
    yield Measure("reactor_streams", "Open streams in this process.", "gauge", streams.count)
    feed = streams.feed
    if feed is None:
        return
    text = "Whether the feed receives notifications; 0: it polls only."
    yield Measure("reactor_feed_listening", text, "gauge", feed.is_listening)
    for name, poller in feed.pollers.items():
        labels = {"stream": name}
        text = "Database polls of the feed, each for all open streams."
        yield Measure("reactor_feed_ticks", text, "counter", poller.ticks, labels)
        text = "From the last notification to the poll that returned the change."
        yield Measure("reactor_feed_lag_seconds", text, "gauge", poller.lag_seconds, labels)
        text = "Subscribed topics: pipelines, or the overview."
        yield Measure("reactor_feed_topics", text, "gauge", len(poller.topics), labels)
        text = "Whether the last poll succeeded."
        yield Measure("reactor_feed_up", text, "gauge", poller.is_well, labels)
