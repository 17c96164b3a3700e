"""When a recurring job is due: by a cron expression in a time zone, or by an interval."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from reactor.errors import TimingInvalid

_WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_CRON_REMEDY = "Use minute, hour, day, month and weekday, as in `0 3 * * *`; or a word such as @daily."


class Timing(Protocol):
    """Moments come and go in UTC. A tick is a moment at which the job is due."""

    def after(self, moment: datetime) -> datetime:
        """The first tick later than `moment`."""

    def latest(self, moment: datetime) -> datetime:
        """The last tick that is not later than `moment`."""


def read_timing(cron: str | None, every: timedelta | None, timezone: str, origin: datetime) -> Timing:
    """`origin`: what intervals are counted from. Raises TimingInvalid for what is never due."""
    timing: Timing
    if cron is not None and every is None:
        timing = Cron(_WORDS.get(cron.strip().lower(), cron), _zone(timezone))
    elif every is not None and cron is None:
        if every < timedelta(seconds=1):
            raise TimingInvalid(f"every {every} is too often", "Use a second or more.")
        timing = Every(every, origin)
    else:
        raise TimingInvalid("it needs either cron or every", "Give one of them.")
    timing.after(origin)
    return timing


@dataclass(frozen=True)
class Every:
    every: timedelta
    origin: datetime

    def after(self, moment: datetime) -> datetime:
        return self._tick((moment - self.origin) // self.every + 1)

    def latest(self, moment: datetime) -> datetime:
        return self._tick((moment - self.origin) // self.every)

    def _tick(self, number: int) -> datetime:
        try:
            return self.origin + number * self.every
        except OverflowError:
            raise TimingInvalid(f"every {self.every} is too rare", "Use some years at most.") from None


@dataclass(frozen=True)
class Cron:
    """As Debian's cron has it: what falls into the hour that a change of the clocks leaves out runs right after it, and
    what falls into the hour that comes twice runs the first time; `*` in the minute or hour follows the real hours."""

    expression: str
    zone: ZoneInfo

    def after(self, moment: datetime) -> datetime:
        # Seen from the second of the two hours, the next tick may seem to lie in the first.
        ticks = self._ticks(moment)
        while (tick := self._next(ticks)) <= moment:
            pass
        return tick

    def latest(self, moment: datetime) -> datetime:
        ticks = self._ticks(moment + timedelta(seconds=1), reverse=True)
        while (tick := self._next(ticks)) > moment:
            pass
        # Backwards it passes by some of the hour that comes twice.
        while (later := self.after(tick)) <= moment:
            tick = later
        return tick

    def _ticks(self, moment: datetime, reverse: bool = False) -> CronSim:
        try:
            return CronSim(self.expression, moment.astimezone(self.zone), reverse)
        except (CronSimError, ValueError, OverflowError) as error:
            raise TimingInvalid(f"{self.expression!r} is no cron expression ({error})", _CRON_REMEDY) from None

    def _next(self, ticks: CronSim) -> datetime:
        try:
            return next(ticks).astimezone(UTC)
        except (StopIteration, ValueError, OverflowError):
            raise TimingInvalid(f"{self.expression!r} is never due", "Is there such a day?") from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise TimingInvalid(f"there is no time zone {name!r}", "Use a name such as Europe/Zurich, or UTC.") from None
