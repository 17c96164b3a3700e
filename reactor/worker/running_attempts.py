"""Which attempts have started and are not settled, in memory that outlives the process that runs them, and when that
process last showed that it runs."""

import mmap
import os
import struct
import tempfile
from typing import NamedTuple
from uuid import UUID

_SIGN_OF_LIFE = struct.Struct("=d")
_ENTRIES = _SIGN_OF_LIFE.size
"""Where they begin."""
_ENTRY = struct.Struct("=16sqdB")
_FREE = b"\0" * _ENTRY.size
_NO_ATTEMPT = b"\0" * 16
_DEADLINE, _ENDED = 24, 32
UNSETTLED = 2000
"""How many attempts may have ended and wait for their commit: four times what one commit settles, so that handlers
don't wait for it unless the database falls behind."""


class Started(NamedTuple):
    job_id: int
    deadline: float
    """When it should have ended, by the machine's monotonic clock; 0: no deadline."""
    has_ended: bool
    """Its handler has ended, and its end is not known to be committed."""


class RunningAttempts:
    """An entry for each attempt, from the start of its handler until its end is committed.

    Shared between a worker process and its supervisor: when the worker dies, the supervisor reads here what had
    started. Writing an entry copies 33 bytes; a message per job would cost throughput.
    """

    def __init__(self, slots: int, *, unsettled: int = UNSETTLED, descriptor: int | None = None) -> None:
        """`unsettled`: how many entries there are beyond one for each slot. `descriptor`: of the memory of another
        instance, which has decided its size."""
        if descriptor is None:
            descriptor = _anonymous_file()
            os.ftruncate(descriptor, _ENTRIES + (slots + unsettled) * _ENTRY.size)
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        self._free = self._all()

    @property
    def free(self) -> int:
        """How many more attempts can start."""
        return len(self._free)

    @property
    def alive_at(self) -> float:
        """The last `note_alive`; 0: there was none."""
        at: float = _SIGN_OF_LIFE.unpack_from(self._memory)[0]
        return at

    def note_alive(self, at: float) -> None:
        """`at`: by the machine's monotonic clock."""
        _SIGN_OF_LIFE.pack_into(self._memory, 0, at)

    def enter(self, attempt_id: UUID, job_id: int, deadline: float = 0.0) -> int:
        """Returns the entry, for the other methods."""
        entry = self._free.pop()
        _ENTRY.pack_into(self._memory, entry, attempt_id.bytes, job_id, deadline, False)
        return entry

    def clear_deadline(self, entry: int) -> None:
        self._memory[entry + _DEADLINE : entry + _ENDED] = _FREE[_DEADLINE:_ENDED]

    def has_ended(self, entry: int) -> None:
        self._memory[entry + _ENDED] = 1

    def leave(self, entry: int) -> None:
        self._memory[entry : entry + _ENTRY.size] = _FREE
        self._free.append(entry)

    def read(self) -> dict[UUID, Started]:
        return {
            UUID(bytes=attempt): Started(job_id, deadline, bool(has_ended))
            for attempt, job_id, deadline, has_ended in _ENTRY.iter_unpack(self._memory[_ENTRIES:])
            if attempt != _NO_ATTEMPT
        }

    def clear(self) -> None:
        self._memory[:] = b"\0" * len(self._memory)
        self._free = self._all()

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)

    def _all(self) -> list[int]:
        """The first one last, so that few pages are touched."""
        return list(range(_ENTRIES, len(self._memory), _ENTRY.size))[::-1]


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("reactor-running-attempts")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
