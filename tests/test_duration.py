"""Durations are parsed and formatted."""

import pytest

from reactor.duration import format_duration, parse_duration


def test_durations_are_parsed_and_formatted() -> None:
    assert [parse_duration(text) for text in ("90", "45s", "5m", "1h30m", "1h 30m", "2D", "0.5")] == [
        90,
        45,
        300,
        5400,
        5400,
        172800,
        0.5,
    ]
    for text in ("", "soon", "5x", "1h30", "-5", "1e9", "99999d"):
        with pytest.raises(ValueError, match="not a duration"):
            parse_duration(text)
    assert [format_duration(seconds) for seconds in (0.25, -1, 59, 60, 3600, 3661, 90061, 86400)] == [
        "0.2 s",
        "0.0 s",
        "59 s",
        "1 min",
        "1 h",
        "1 h 1 min",
        "1 d 1 h",
        "1 d",
    ]
