"""What the attempts of one worker process share."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from reactor.handlers.transaction import Pool
from reactor.job import Job
from reactor.lifecycle.writers import Writers

Around = Callable[[Job, Any], AbstractAsyncContextManager[Any]]


@dataclass(frozen=True)
class Services:
    writers: Writers
    pool: Pool
    resources: Mapping[str, Any]
    arounds: Sequence[Around]
    """Run around each call of a handler."""
    executor: Executor
    """The threads of handlers that are plain functions."""
    captures_logging: bool = False
    """Unless a handler says otherwise."""
