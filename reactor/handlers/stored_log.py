"""Stores what handlers log: a processor of structlog for `ctx.log`, and a handler of the standard library's logging."""

import json
import logging
import traceback
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any

import structlog

from reactor.database.jsonb import encode, storable
from reactor.handlers.step import step_name
from reactor.job_log import LEVELS, JobLog
from reactor.log import Logger

CAPTURING: ContextVar[JobLog | None] = ContextVar("reactor_capturing", default=None)
"""The log of the attempt that runs in this context, if it stores what is logged through the standard library."""

_LONGEST_MESSAGE = 8000
_LONGEST_FIELDS = 8000
_LONGEST_EXCEPTION = 8000
_SHORTENED = 500
"""Of each field, if all of them are too long."""
_NO_FIELDS = frozenset({"event", "positional_args", "exc_info", "stack_info"})
_NO_EXTRAS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "_logger", "_name"}
_LEVELS = {name: number for number, name in enumerate(LEVELS)} | {"warn": 2, "exception": 3, "fatal": 4}
_INFO = LEVELS.index("info")
_MISSING = object()


def storing_logger(logger: Logger, job_log: JobLog, bound: Mapping[str, Any]) -> Logger:
    """The logger of an attempt, which prints what it stores as any other one does."""
    # What structlog.wrap_logger makes, in a third of the time.
    processors: list[Any] = [_Store(job_log, bound), *logger._processors]
    return type(logger)(logger._logger, processors, structlog.get_context(logger))


class _Store:
    """The first processor: it sees a line before the level or the format of the printed log does."""

    __slots__ = ("_bound", "_log")

    def __init__(self, job_log: JobLog, bound: Mapping[str, Any]) -> None:
        self._log = job_log
        self._bound = bound

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        level = _LEVELS.get(method, _INFO)
        if level >= self._log.threshold:
            try:
                message, fields = self._render(event)
            except Exception as error:
                message, fields = _unstorable(error)
            self._log.append(LEVELS[level], step_name(), message, fields)
        return event

    def _render(self, event: Mapping[str, Any]) -> tuple[str, str | None]:
        message, bound = event.get("event"), self._bound
        # The row of the job has what the engine binds.
        values = {
            name: value
            for name, value in event.items()
            if name not in _NO_FIELDS and bound.get(name, _MISSING) is not value
        }
        if shared := structlog.contextvars.get_contextvars():
            values = shared | values
        if arguments := event.get("positional_args"):
            message = _formatted(message, arguments)
        return _text(message), _fields(values, event.get("exc_info"))


def capture_logging() -> None:
    """From now on, in this process: only within attempts that ask for it."""
    root = logging.getLogger()
    if not any(isinstance(handler, CaptureHandler) for handler in root.handlers):
        root.addHandler(CaptureHandler())


class CaptureHandler(logging.Handler):
    """Finds the attempt by the context, so that it works in the threads of handlers and in parallel steps. The engine's
    own records are left out: `ctx.log` stores its lines itself."""

    def emit(self, record: logging.LogRecord) -> None:
        job_log = CAPTURING.get()
        if job_log is None or record.name.partition(".")[0] in ("reactor", "reactor_http"):
            return
        level = _level_of(record.levelno)
        if level >= job_log.threshold:
            # What is logged while a value is turned into text is not captured in turn.
            token = CAPTURING.set(None)
            try:
                message, fields = _render_record(record)
            except Exception as error:
                message, fields = _unstorable(error)
            finally:
                CAPTURING.reset(token)
            job_log.append(LEVELS[level], step_name(), message, fields)


def _unstorable(error: Exception) -> tuple[str, None]:
    """Whatever is wrong with a line, it is not worth an error of the handler."""
    return f"A line could not be stored: {type(error).__name__}", None


def _level_of(number: int) -> int:
    """A level of the standard library, which may be any number."""
    return min(max(number // 10 - 1, 0), _LEVELS["critical"])


def _render_record(record: logging.LogRecord) -> tuple[str, str | None]:
    extras = {name: value for name, value in vars(record).items() if name not in _NO_EXTRAS}
    exception: Any = record.exc_info or record.exc_text
    message: Any
    if isinstance(record.msg, dict) and hasattr(record, "_name"):  # of structlog, on its way to its formatter
        extras |= record.msg
        message, exception = extras.pop("event", ""), exception or extras.pop("exc_info", None)
        for name in ("level", "timestamp", "logger"):
            extras.pop(name, None)
    else:
        try:
            message = record.getMessage()
        except Exception:
            message = _formatted(record.msg, record.args)
    return _text(message), _fields({"logger": record.name, **extras}, exception)


def _formatted(message: Any, arguments: Any) -> str:
    try:
        return str(message % arguments)
    except Exception:
        return f"{_shown(message)} {_shown(arguments)}"


def _text(message: Any) -> str:
    text = message if isinstance(message, str) else _shown(message)
    return storable(_shortened(text, _LONGEST_MESSAGE))


def _fields(values: dict[str, Any], exception: Any) -> str | None:
    if not values and not exception:
        return None
    try:
        encoded = encode(values)
    except ValueError:
        values = {storable(str(name)): _plain(value) for name, value in values.items()}
        encoded = encode(values)
    if len(encoded) > _LONGEST_FIELDS:
        values = _fitting(values)
        encoded = encode(values)
    if exception and (traceback_ := _traceback(exception)):
        encoded = encode({**values, "exception": traceback_})
    return encoded if encoded != "{}" else None


def _plain(value: Any) -> Any:
    """As JSON has it, or as text."""
    try:
        plain = json.loads(json.dumps(value, default=_shown))
        encode(plain)
    except (TypeError, ValueError, RecursionError):
        return storable(_shown(value))
    return plain


def _fitting(values: Mapping[str, Any]) -> dict[str, Any]:
    """As many as there is room for, each shortened."""
    fitting: dict[str, Any] = {}
    size = 0
    for number, (name, value) in enumerate(values.items()):
        short = _shortened(name, _SHORTENED)
        text = json.dumps(value)
        fitting[short] = value if len(text) <= _SHORTENED else _shortened(_shown(value), _SHORTENED)
        size += len(json.dumps({short: fitting[short]}))
        if size > _LONGEST_FIELDS:
            del fitting[short]
            fitting["…"] = f"{len(values) - number} more"
            break
    return fitting


def _traceback(exception: Any) -> str | None:
    """Of what may be an exception, what sys.exc_info() returns, a text, or True for the one that is being handled."""
    if isinstance(exception, str):
        lines = [exception]
    elif isinstance(exception, BaseException):
        lines = traceback.format_exception(exception)
    elif isinstance(exception, tuple):
        lines = traceback.format_exception(*exception) if exception[0] is not None else []
    else:
        lines = [traceback.format_exc()]
    text = "".join(lines).rstrip()
    return storable(_without_middle(text, _LONGEST_EXCEPTION)) or None


def _shown(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"({type(value).__name__} can't be shown: {type(error).__name__})"


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 2] + " …"


def _without_middle(text: str, longest: int) -> str:
    """The beginning says where, and the end what."""
    return text if len(text) <= longest else f"{text[: longest // 4]}\n…\n{text[-(longest * 3 // 4) :]}"
