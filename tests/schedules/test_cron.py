"""Due times: cron expressions across clock changes, and intervals."""

from datetime import UTC, datetime, timedelta

import pytest

from reactor.errors import TimingInvalid
from reactor.schedules.cron import parse_timing

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def ticks(cron: str, start: datetime, count: int, zone: str = "Europe/Zurich") -> list[str]:
    timing, found = parse_timing(cron, None, zone, START), [start]
    for _ in range(count):
        found.append(timing.after(found[-1]))
    return [f"{moment:%d %H:%M}" for moment in found[1:]]


def test_ticks_in_a_skipped_hour_run_right_after_it() -> None:
    """Zurich, 29 March 2026: 02:00 to 03:00 does not exist. 03:00 summer time is 01:00 UTC."""
    eve = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert ticks("30 2 * * *", eve, 2) == ["29 01:00", "30 00:30"]
    assert ticks("15,45 2 * * *", eve, 2) == ["29 01:00", "30 00:15"], "once, not once per tick"
    assert ticks("0 4 * * *", eve, 2) == ["29 02:00", "30 02:00"]
    assert ticks("30 * * * *", eve + 12 * HOUR, 3) == ["29 00:30", "29 01:30", "29 02:30"]


def test_ticks_in_a_repeated_hour_run_once() -> None:
    """Zurich, 25 October 2026: 02:00 to 03:00 is repeated, at 00:00 and 01:00 UTC."""
    eve = datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert ticks("30 2 * * *", eve, 2) == ["25 00:30", "26 01:30"]
    assert ticks("0 4 * * *", eve, 2) == ["25 03:00", "26 03:00"]
    assert ticks("*/30 * * * *", eve + 12 * HOUR, 5) == ["25 00:30", "25 01:00", "25 01:30", "25 02:00", "25 02:30"]


@pytest.mark.parametrize("cron", ["30 2 * * *", "15,30 2 * * *", "30 1-3 * * *", "*/20 * * * *", "30 */2 * * *"])
@pytest.mark.parametrize("eve", [datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)])
def test_ticks_around_a_clock_change_are_the_same_from_every_moment(cron: str, eve: datetime) -> None:
    """The next and the latest tick don't depend on when a pod computes them."""
    timing = parse_timing(cron, None, "Europe/Zurich", START)
    known = [timing.after(eve)]
    while known[-1] < eve + 36 * HOUR:
        known.append(timing.after(known[-1]))
    for minutes in range(0, 34 * 60, 5):
        moment = eve + timedelta(minutes=minutes)
        assert timing.after(moment) == min(tick for tick in known if tick > moment)
        if moment >= known[0]:
            assert timing.latest(moment) == max(tick for tick in known if tick <= moment)


def test_intervals_are_counted_from_their_origin() -> None:
    timing = parse_timing(None, timedelta(minutes=7), "UTC", START)
    assert timing.after(START) == START + timedelta(minutes=7)
    assert timing.after(START + timedelta(minutes=20)) == START + timedelta(minutes=21)
    assert timing.latest(START + timedelta(minutes=20)) == START + timedelta(minutes=14)
    assert timing.latest(START + timedelta(minutes=21)) == START + timedelta(minutes=21)


def test_cron_aliases_and_seconds_are_accepted() -> None:
    assert parse_timing("@daily", None, "UTC", START).after(START) == START + 24 * HOUR
    assert parse_timing("*/10 * * * * *", None, "UTC", START).after(START) == START + timedelta(seconds=10)


@pytest.mark.parametrize(
    ("cron", "every", "timezone", "why"),
    [
        ("61 * * * *", None, "UTC", "Bad minute"),
        ("soon", None, "UTC", "not a cron expression"),
        ("0 0 30 2 *", None, "UTC", "day-of-month"),
        ("0 0 */20 * 1L", None, "UTC", "never matches"),
        ("0 3 * * *", None, "Europe/Zurch", "no time zone 'Europe/Zurch'"),
        ("0 3 * * *", None, "../../etc/passwd", "no time zone"),
        ("0 3 * * *", None, "", "no time zone"),
        (None, timedelta(0), "UTC", "too short"),
        (None, timedelta(days=4_000_000), "UTC", "too long"),
        (None, None, "UTC", "either cron or every"),
        ("0 3 * * *", HOUR, "UTC", "either cron or every"),
    ],
)
def test_a_timing_without_ticks_is_refused_with_the_reason(
    cron: str | None, every: timedelta | None, timezone: str, why: str
) -> None:
    with pytest.raises(TimingInvalid, match=why):
        parse_timing(cron, every, timezone, START)
