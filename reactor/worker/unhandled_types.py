"""Tells of ready jobs that no live pod has a handler for: nothing else would, and they wait for ever."""

from reactor.database import statements
from reactor.database.reconnecting import ReconnectingConnection
from reactor.log import get_logger

log = get_logger(__name__)

_PAUSE_SECONDS = 5.0
_AGAIN_SECONDS = 600.0


class Unhandled:
    def __init__(self, line: ReconnectingConnection) -> None:
        self._line = line
        self._next_look = 0.0
        self._told: dict[tuple[str, str], float] = {}

    async def report(self, now: float) -> None:
        """Each kind once in ten minutes, however often this is called."""
        if now < self._next_look:
            return
        self._next_look = now + _PAUSE_SECONDS
        records, _ = await self._line.retry(lambda connection: connection.fetch(statements.UNHANDLED, 100))
        for queue, job_type in records:
            if now - self._told.get((queue, job_type), -_AGAIN_SECONDS) >= _AGAIN_SECONDS:
                self._told[queue, job_type] = now
                log.warning("no live pod has a handler for these jobs", job_type=job_type, queue=queue)
