"""Due times of recurring jobs: a cron expression in a time zone, or an interval."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from reactor.errors import TimingInvalid

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_CRON_REMEDY = "Use minute, hour, day, month and weekday, as in `0 3 * * *`, or an alias such as @daily."


class Timing(Protocol):
    """Computes ticks, the times at which a recurring job is due. All times are in UTC."""

    def after(self, moment: datetime) -> datetime:
        """The first tick after `moment`."""

    def latest(self, moment: datetime) -> datetime:
        """The last tick at or before `moment`."""


def parse_timing(cron: str | None, every: timedelta | None, timezone: str, origin: datetime) -> Timing:
    """`origin`: the start of the first interval. Raises TimingInvalid, also for a timing without ticks."""
    timing: Timing
    if cron is not None and every is None:
        timing = Cron(_ALIASES.get(cron.strip().lower(), cron), _zone(timezone))
    elif every is not None and cron is None:
        if every < timedelta(seconds=1):
            raise TimingInvalid(f"the interval {every} is too short", "Use at least one second.")
        timing = Every(every, origin)
    else:
        raise TimingInvalid("it needs either cron or every", "Set exactly one of them.")
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
            raise TimingInvalid(f"the interval {self.every} is too long", "Use a few years at most.") from None


@dataclass(frozen=True)
class Cron:
    """Ticks of a cron expression. Daylight saving time is handled like in Debian's cron.

    Ticks in a skipped hour run right after it, and ticks in a repeated hour run the first time. With `*` as minute or
    hour, ticks follow elapsed time.
    """

    expression: str
    zone: ZoneInfo

    def after(self, moment: datetime) -> datetime:
        # During the second of two repeated hours, CronSim may return a tick of the first.
        ticks = self._ticks(moment)
        while (tick := self._next(ticks)) <= moment:
            pass
        return tick

    def latest(self, moment: datetime) -> datetime:
        ticks = self._ticks(moment + timedelta(seconds=1), reverse=True)
        while (tick := self._next(ticks)) > moment:
            pass
        # Backwards, CronSim misses some ticks of a repeated hour.
        while (later := self.after(tick)) <= moment:
            tick = later
        return tick

    def _ticks(self, moment: datetime, reverse: bool = False) -> CronSim:
        try:
            return CronSim(self.expression, moment.astimezone(self.zone), reverse)
        except (CronSimError, ValueError, OverflowError) as error:
            raise TimingInvalid(f"{self.expression!r} is not a cron expression ({error})", _CRON_REMEDY) from None

    def _next(self, ticks: CronSim) -> datetime:
        try:
            return next(ticks).astimezone(UTC)
        except (StopIteration, ValueError, OverflowError):
            raise TimingInvalid(f"{self.expression!r} never matches", "Check day and month.") from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise TimingInvalid(f"there is no time zone {name!r}", "Use a name such as Europe/Zurich or UTC.") from None
