"""Which attempts have begun, in memory that outlives the process that runs them."""

import mmap
import os
import struct
import tempfile
from uuid import UUID

_SLOT = struct.Struct("=16sd")
_FREE = b"\0" * _SLOT.size


class Begun:
    """A slot for each attempt that runs: its id, and when it should have ended (by the machine's monotonic clock).

    Shared between a worker process and its supervisor: when the worker dies, the supervisor reads here who was running.
    Writing a slot is a copy of 24 bytes; a message per job would be felt at full speed.
    """

    def __init__(self, slots: int, descriptor: int | None = None) -> None:
        size = slots * _SLOT.size
        if descriptor is None:
            descriptor = _anonymous_file()
            os.ftruncate(descriptor, size)
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, size)
        self._free = list(range(0, size, _SLOT.size))
        self._slots = slots

    def enter(self, attempt_id: UUID, deadline: float = 0.0) -> int:
        """`deadline` 0: none. Returns the slot, to be left with."""
        slot = self._free.pop()
        _SLOT.pack_into(self._memory, slot, attempt_id.bytes, deadline)
        return slot

    def leave(self, slot: int) -> None:
        self._memory[slot : slot + _SLOT.size] = _FREE
        self._free.append(slot)

    def read(self) -> dict[UUID, float]:
        """Every attempt that runs, with its deadline."""
        found = (_SLOT.unpack_from(self._memory, n * _SLOT.size) for n in range(self._slots))
        return {UUID(bytes=attempt): deadline for attempt, deadline in found if any(attempt)}

    def clear(self) -> None:
        self._memory[:] = b"\0" * len(self._memory)
        self._free = list(range(0, len(self._memory), _SLOT.size))

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("reactor-begun")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
