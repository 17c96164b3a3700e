"""What the open streams of this process cost, as metrics."""

from collections.abc import Iterator

from reactor_http.measure import Measure
from reactor_http.stream.streams import Streams


def stream_metrics(streams: Streams) -> Iterator[Measure]:
    """Of the feed nothing, before somebody has watched anything: it does not run."""
    yield Measure("reactor_streams", "Streams that are open in this process.", "gauge", streams.count)
    feed = streams.feed
    if feed is None:
        return
    text = "Whether the feed hears of changes; 0: it works by polling alone."
    yield Measure("reactor_feed_listening", text, "gauge", feed.is_listening)
    for name, poller in feed.pollers.items():
        labels = {"desk": name}
        text = "Questions that the feed asked the database, each for all who watch."
        yield Measure("reactor_feed_ticks", text, "counter", poller.ticks, labels)
        text = "From the last ring to the answer that told what had changed."
        yield Measure("reactor_feed_lag_seconds", text, "gauge", poller.lag_seconds, labels)
        text = "What is being watched: pipelines, or the overview."
        yield Measure("reactor_feed_topics", text, "gauge", len(poller.topics), labels)
        text = "Whether the feed's last question was answered."
        yield Measure("reactor_feed_up", text, "gauge", poller.is_well, labels)
