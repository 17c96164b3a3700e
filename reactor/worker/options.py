"""What a worker process is to do: its options, and the orders in which its supervisor sends them."""

import json
from dataclasses import asdict, dataclass, field

from reactor.job_log import LogOptions


@dataclass(frozen=True)
class WorkerOptions:
    url: str
    listen_url: str
    poll_seconds: float = 10
    """0: never."""
    reconcile_seconds: float = 15
    """How often to compare what runs here with what the database says this worker holds."""
    once: bool = False
    """Run what is due, then end."""
    max_jobs: int | None = None
    prepares: bool = True
    """False behind a pooler that gives each transaction another session."""
    inherits: bool = False
    """Run what was handed over to this worker, then end; claim nothing."""
    logs: LogOptions = field(default_factory=LogOptions)


@dataclass(frozen=True)
class Orders:
    """Everything that a worker process needs to know. Sent over its socket and not on its command line, which other
    users can read: addresses contain passwords."""

    app: str
    worker_id: str
    pod: str
    queues: tuple[str, ...]
    concurrency: int
    lease_seconds: float
    options: WorkerOptions
    log_level: str
    log_as_json: bool
    attempts_descriptor: int = -1
    """Of the memory in which it notes its running attempts; the supervisor sets this and the next for each process."""
    supervisor_pid: int = -1

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> "Orders":
        values = json.loads(line)
        options = values["options"] | {"logs": LogOptions(**values["options"]["logs"])}
        return cls(**values | {"options": WorkerOptions(**options), "queues": tuple(values["queues"])})
