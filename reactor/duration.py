"""Lengths of time as people write and read them: `90`, `5m`, `1h 30m`."""

import re

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PARTS = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)", re.IGNORECASE)
_LONGEST_SECONDS = 10 * 365 * 86400.0


def parse_duration(text: str) -> float:
    """Seconds. A bare number is seconds too; parts may follow each other, as in 1h30m. ValueError for anything else."""
    seconds, position = 0.0, 0
    text = text.strip()
    while position < len(text):
        part = _PARTS.match(text, position)
        if part is None or (not part[2] and len(part[0]) != len(text)):
            raise ValueError(f"{text!r} is no length of time; write 90, 45s, 5m, 1h30m or 2d")
        seconds += float(part[1]) * _SECONDS[part[2].lower() or "s"]
        position = part.end()
    if not text or seconds > _LONGEST_SECONDS:
        raise ValueError(f"{text!r} is no length of time up to ten years; write 90, 45s, 5m, 1h30m or 2d")
    return seconds


def in_words(seconds: float) -> str:
    """The two largest units, which is as exact as anybody reads."""
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
