"""How much work to claim ahead of the handlers, from how fast they are."""

# What an urgent job waits behind at most, and what other pods can't have.
_AHEAD_SECONDS = 0.05
_MOST_AHEAD = 500
_WINDOW_SECONDS = 0.1


class Pace:
    """Jobs a second over the last one or two tenths of a second: those that take longer count as none, and none is
    claimed ahead of them, so that another pod can have it."""

    def __init__(self) -> None:
        self._before = (0.0, 0)
        self._latest = (0.0, 0)

    def mark(self, now: float, ended: int) -> None:
        if now - self._latest[0] >= _WINDOW_SECONDS:
            self._before, self._latest = self._latest, (now, ended)

    def ahead(self, now: float, ended: int) -> int:
        since, before = self._before
        return min(_MOST_AHEAD, int((ended - before) / max(now - since, 0.02) * _AHEAD_SECONDS))
