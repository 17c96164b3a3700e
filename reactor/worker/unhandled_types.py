"""Warns of ready jobs that no live pod has a handler for: they wait forever, and nothing else reports them."""

from reactor.database import statements
from reactor.database.reconnecting import ReconnectingConnection
from reactor.log import get_logger

log = get_logger(__name__)

_PAUSE_SECONDS = 5.0
_REPEAT_SECONDS = 600.0
_MOST = 100


class UnhandledTypes:
    def __init__(self, connection: ReconnectingConnection) -> None:
        self._connection = connection
        self._next_at = 0.0
        self._reported_at: dict[tuple[str, str], float] = {}

    async def report(self, now: float) -> None:
        """Each type once in ten minutes, however often this is called."""
        if now < self._next_at:
            return
        self._next_at = now + _PAUSE_SECONDS
        records, _ = await self._connection.retry(
            lambda connection: connection.fetch(statements.UNHANDLED_TYPES, _MOST)
        )
        for queue, job_type in records:
            if now - self._reported_at.get((queue, job_type), -_REPEAT_SECONDS) >= _REPEAT_SECONDS:
                self._reported_at[queue, job_type] = now
                log.warning("no live pod has a handler for these jobs", job_type=job_type, queue=queue)
