"""Logging: structured events, human-readable in a terminal and JSON lines elsewhere."""

import logging
import sys
from typing import TextIO

import structlog

# Local variables may contain passwords, tokens and payloads.
_TRACEBACK = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)

Logger = structlog.stdlib.BoundLogger


def get_logger(name: str) -> Logger:
    logger: Logger = structlog.stdlib.get_logger(name)
    return logger


def configure_logging(level: str = "info", stream: TextIO | None = None, as_json: bool | None = None) -> None:
    """Sends the records of structlog and of the standard library (uvicorn, alembic, asyncpg) to one handler."""
    stream = stream or sys.stderr
    as_json = not stream.isatty() if as_json is None else as_json
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    ends: list[structlog.typing.Processor] = (
        [structlog.processors.ExceptionRenderer(_TRACEBACK), structlog.processors.JSONRenderer(default=str)]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)]
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ends],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # At info, Alembic logs every migration context, which adds nothing to our own events.
    logging.getLogger("alembic").setLevel(logging.WARNING)
