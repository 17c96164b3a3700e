"""What an attempt logs, until it is stored: a bounded buffer that any thread may fill."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args
from uuid import UUID

from reactor.errors import SettingsInvalid

Level = Literal["debug", "info", "warning", "error", "critical", "off"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""In ascending order; nothing is logged at `off`."""

_LAST_LINES = 100
_LINE_BYTES = 100
"""What a line takes besides its texts."""
_UNSTORED_BYTES = 8_000_000
"""How much all attempts of a process keep in memory while the database does not take it; their last lines may take as
much again."""


_REPORT_SECONDS = 60.0


@dataclass(frozen=True)
class LogOptions:
    """What is stored of the logs of handlers, and how much at most."""

    level: Level = "info"
    """Lines below this level are not stored; off: nothing is. A handler's own level takes precedence."""
    max_lines: int = 10_000
    """For each attempt, like `max_bytes`: its first lines, and its last ones."""
    max_bytes: int = 2_000_000
    max_attempts: int = 10
    """Of a job whose lines are kept: the newest ones."""
    captures_logging: bool = False
    """Store what handlers log through the standard library's logging, too."""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise SettingsInvalid([f"{self.level!r} is not a level of logs: use one of {', '.join(LEVELS)}."])
        if min(self.max_lines, self.max_bytes, self.max_attempts) < 1:
            raise SettingsInvalid(["The limits of logs must be at least 1. Use the level `off` to store nothing."])


class Line(NamedTuple):
    number: int
    """Its position in the attempt, from 1."""
    logged_at: float
    """By the monotonic clock of this machine."""
    level: str
    step: str | None
    message: str
    fields: str | None
    """As JSON."""
    size: int


class Room:
    """What the logs of all attempts of a process share: their lock, their limits, and the memory that they take."""

    def __init__(self, options: LogOptions, max_bytes: int = _UNSTORED_BYTES) -> None:
        # Reentrant: a finalizer that the garbage collector calls may log while its thread holds the lock.
        self.lock = threading.RLock()
        self.max_bytes = max_bytes
        self.used = 0
        self._refused_at = -_REPORT_SECONDS
        self.max_attempts = options.max_attempts
        self.last_lines = min(_LAST_LINES, options.max_lines // 2)
        self.last_bytes = options.max_bytes // 10
        self.first_lines = options.max_lines - self.last_lines
        self.first_bytes = options.max_bytes - self.last_bytes

    def note_refusal(self) -> bool:
        """Lines could not be stored. Whether that is to be reported: once a minute."""
        now = time.monotonic()
        is_due = now - self._refused_at >= _REPORT_SECONDS
        if is_due:
            self._refused_at = now
        return is_due


class JobLog:
    """The lines of one attempt. The first ones are kept until they are stored. Of those that exceed a limit, the last
    ones are kept and stored with the attempt's end, because the end of a log says why an attempt failed."""

    __slots__ = (
        "_bytes",
        "_in_flight",
        "_is_closed",
        "_is_listed",
        "_last",
        "_last_bytes",
        "_left_out",
        "_lines",
        "_number",
        "_on_lines",
        "_pending",
        "_room",
        "attempt",
        "attempt_id",
        "is_later_attempt",
        "job_id",
        "threshold",
    )

    def __init__(
        self,
        job_id: int,
        attempt_id: UUID,
        attempt: int,
        threshold: int,
        room: Room,
        on_lines: Callable[["JobLog"], None],
        *,
        is_later_attempt: bool,
    ) -> None:
        """`threshold`: the lowest level to be stored, as an index of LEVELS. `on_lines` is called in any thread when
        there are lines to be taken."""
        self.job_id = job_id
        self.attempt_id = attempt_id
        self.attempt = attempt
        self.threshold = threshold
        self.is_later_attempt = is_later_attempt
        """There may be lines of earlier attempts, and this one has stored none yet."""
        self._room = room
        self._on_lines = on_lines
        self._pending: deque[Line] = deque()
        self._in_flight: list[Line] = []
        self._last: deque[Line] = deque()
        self._last_bytes = 0
        self._left_out = 0
        self._number = self._lines = self._bytes = 0
        self._is_listed = self._is_closed = False

    @property
    def kept(self) -> int:
        """The number of lines that are in memory."""
        return len(self._pending) + len(self._in_flight) + len(self._last)

    @property
    def max_attempts(self) -> int:
        return self._room.max_attempts

    def note_refusal(self) -> bool:
        return self._room.note_refusal()

    def append(self, level: str, step: str | None, message: str, fields: str | None) -> None:
        size = _LINE_BYTES + _bytes(message)
        if fields is not None:
            size += len(fields)
        if step is not None:
            size += _bytes(step)
        logged_at = time.monotonic()
        with self._room.lock:
            self._number += 1
            if self._is_closed:
                return
            line = Line(self._number, logged_at, level, step, message, fields, size)
            self._room.used += size
            if not self._last and self._has_room(size):
                self._keep(line)
            else:
                self._keep_last(line)
            if self._is_listed:
                return
            self._is_listed = True
        self._on_lines(self)

    def take(self, most: int, *, is_end: bool = False) -> list[Line]:
        """The next lines to store, at most `most`, or all at the attempt's end. They are in flight until `confirm` or
        `put_back`; until then there are no others."""
        with self._room.lock:
            if self._in_flight or self._is_closed:
                return []
            if is_end or self._has_room(self._last_bytes):
                self._join_last()
            count = len(self._pending) if is_end else min(most, len(self._pending))
            self._in_flight = [self._pending.popleft() for _ in range(count)]
            self._is_listed = bool(self._pending)
            return self._in_flight

    @property
    def has_more(self) -> bool:
        return bool(self._pending)

    @property
    def is_in_flight(self) -> bool:
        return bool(self._in_flight)

    def confirm(self) -> None:
        """They are stored, or can't be."""
        with self._room.lock:
            self._forget(self._in_flight)
            self._in_flight = []
            self.is_later_attempt = False

    def put_back(self) -> None:
        """To be taken again."""
        with self._room.lock:
            self._pending.extendleft(reversed(self._in_flight))
            self._in_flight = []
            self._is_listed = True
        self._on_lines(self)

    def close(self) -> None:
        """Nothing more is stored: the attempt has ended."""
        with self._room.lock:
            for lines in (self._pending, self._in_flight, self._last):
                self._forget(lines)
            self._pending.clear()
            self._in_flight = []
            self._last.clear()
            self._is_closed = True

    # Called with the lock

    def _has_room(self, size: int) -> bool:
        """For lines that the room counts already."""
        room = self._room
        return self._lines < room.first_lines and self._bytes + size <= room.first_bytes and room.used <= room.max_bytes

    def _keep(self, line: Line) -> None:
        self._pending.append(line)
        self._lines += 1
        self._bytes += line.size

    def _keep_last(self, line: Line) -> None:
        room = self._room
        self._last.append(line)
        self._last_bytes += line.size
        while self._last and (
            len(self._last) > room.last_lines or self._last_bytes > room.last_bytes or room.used > 2 * room.max_bytes
        ):
            left_out = self._last.popleft()
            self._last_bytes -= left_out.size
            room.used -= left_out.size
            self._left_out += 1

    def _join_last(self) -> None:
        """The last lines follow the others, with a line that says how many are missing between them."""
        if self._left_out:
            number = self._last[0].number - 1 if self._last else self._number
            logged_at = self._last[0].logged_at if self._last else time.monotonic()
            message = f"{self._left_out:,} {'line' if self._left_out == 1 else 'lines'} left out"
            fields = f'{{"left_out": {self._left_out}}}'
            self._room.used += _LINE_BYTES
            self._keep(Line(number, logged_at, "warning", None, message, fields, _LINE_BYTES))
            self._left_out = 0
        for line in self._last:
            self._keep(line)
        self._last.clear()
        self._last_bytes = 0

    def _forget(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self._room.used -= line.size


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
