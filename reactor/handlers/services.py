"""What the attempts of one worker process share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reactor.handlers.transaction import Pool
from reactor.lifecycle.writers import Writers


@dataclass(frozen=True)
class Services:
    writers: Writers
    pool: Pool
    resources: Mapping[str, Any]
