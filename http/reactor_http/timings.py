"""How long the HTTP server waits for its database and clients, and how long it reuses a result."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timings:
    request_seconds: float = 30.0
    """For a whole request, streams excepted."""
    connect_seconds: float = 2.0
    """For a free database connection. Short, so that clients learn soon that the database is unavailable."""
    clock_seconds: float = 5.0
    """For the database's time."""
    health_seconds: float = 2.0
    """For the database in a health check; probes time out soon."""
    health_cache_seconds: float = 0.5
    metrics_seconds: float = 6.0
    """For all database metrics of a scrape; Prometheus times out after 10 s."""
    metrics_statement_seconds: float = 2.0
    """For one part of them."""
    metrics_cache_seconds: float = 2.0
    stats_cache_seconds: float = 2.0
    stream_join_seconds: float = 5.0
    """From the request for a stream to its first batch."""
    stream_send_seconds: float = 30.0
    """For a client to accept what it is sent."""
    stream_keepalive_seconds: float = 15.0
    """Without an event, after which a comment is sent."""
