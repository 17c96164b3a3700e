"""Which attempts have started, in memory that outlives the process that runs them."""

import mmap
import os
import struct
import tempfile
from uuid import UUID

_ENTRY = struct.Struct("=16sd")
_FREE = b"\0" * _ENTRY.size


class RunningAttempts:
    """An entry for each attempt that runs: its id, and when it should have ended (by the machine's monotonic clock).

    Shared between a worker process and its supervisor: when the worker dies, the supervisor reads here what was
    running. Writing an entry copies 24 bytes; a message per job would cost throughput.
    """

    def __init__(self, capacity: int, descriptor: int | None = None) -> None:
        size = capacity * _ENTRY.size
        if descriptor is None:
            descriptor = _anonymous_file()
            os.ftruncate(descriptor, size)
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, size)
        self._free = list(range(0, size, _ENTRY.size))
        self._capacity = capacity

    def enter(self, attempt_id: UUID, deadline: float = 0.0) -> int:
        """`deadline` 0: none. Returns the entry, for `leave`."""
        entry = self._free.pop()
        _ENTRY.pack_into(self._memory, entry, attempt_id.bytes, deadline)
        return entry

    def leave(self, entry: int) -> None:
        self._memory[entry : entry + _ENTRY.size] = _FREE
        self._free.append(entry)

    def read(self) -> dict[UUID, float]:
        """Every attempt that runs, with its deadline."""
        found = (_ENTRY.unpack_from(self._memory, n * _ENTRY.size) for n in range(self._capacity))
        return {UUID(bytes=attempt): deadline for attempt, deadline in found if any(attempt)}

    def clear(self) -> None:
        self._memory[:] = b"\0" * len(self._memory)
        self._free = list(range(0, len(self._memory), _ENTRY.size))

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("reactor-running-attempts")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
