"""Reaps orphans: the first process of a container is the parent of all processes whose own parents have gone."""

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable

_REAP_SECONDS = 1.0
_GET_CHILD_SUBREAPER = 37


def inherits_orphans() -> bool:
    """Whether this is such a process, or is marked as one (PR_SET_CHILD_SUBREAPER)."""
    is_marked = ctypes.c_int(0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_GET_CHILD_SUBREAPER, ctypes.byref(is_marked))
    return os.getpid() == 1 or bool(is_marked.value)


async def keep_reaping(is_own: Callable[[int], bool]) -> None:
    """Until it is cancelled. `is_own`: whether this process waits for the pid itself."""
    while True:
        await asyncio.sleep(_REAP_SECONDS)
        _reap(is_own)


def _reap(is_own: Callable[[int], bool]) -> None:
    try:
        # Looks at the first one without taking its exit code. One of our own is taken soon, by what waits for it.
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and not is_own(ended.si_pid):
            os.waitpid(ended.si_pid, os.WNOHANG)
    except ChildProcessError:
        return  # there is no child
