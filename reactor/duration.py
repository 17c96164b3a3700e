"""Parses and formats durations: `90`, `5m`, `1h30m`."""

import re

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PARTS = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)", re.IGNORECASE)
_MAX_SECONDS = 10 * 365 * 86400.0


def parse_duration(text: str) -> float:
    """Returns seconds. A bare number is seconds; units can be combined, as in 1h30m. Raises ValueError."""
    seconds, position = 0.0, 0
    text = text.strip()
    while position < len(text):
        part = _PARTS.match(text, position)
        if part is None or (not part[2] and len(part[0]) != len(text)):
            raise ValueError(f"{text!r} is not a duration; write 90, 45s, 5m, 1h30m or 2d")
        seconds += float(part[1]) * _SECONDS[part[2].lower() or "s"]
        position = part.end()
    if not text or seconds > _MAX_SECONDS:
        raise ValueError(f"{text!r} is not a duration of up to ten years; write 90, 45s, 5m, 1h30m or 2d")
    return seconds


def format_duration(seconds: float) -> str:
    """The duration in its two largest units, as in `2 h 30 min`."""
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)
