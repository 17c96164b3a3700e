"""Which function handles which type of job, what handlers share, and which jobs recur."""

import importlib
import inspect
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, Unpack, get_args

from reactor.client.submit import Delivery
from reactor.errors import AppInvalid, HandlerInvalid, HandlerTwice, HandlerUnknown, ScheduleInvalid, ScheduleTwice
from reactor.handlers import builtin
from reactor.handlers.backoff import Backoff, exponential, fixed
from reactor.handlers.limits import Limit
from reactor.handlers.services import Around
from reactor.handlers.signature import PayloadModel, arguments_of, payload_model
from reactor.job import Job
from reactor.job_log import LEVELS, Level
from reactor.schedules.declaration import Schedule, ScheduleOptions

Function = TypeVar("Function", bound=Callable[..., Any])

_DEFAULT_BACKOFF = exponential()
# As the database refuses it (reactor.is_name): no row can name such a handler.
_UNREADABLE = re.compile(r"[\x00-\x1f\x7f]|^\s|\s$")


@dataclass(frozen=True, slots=True)
class Handler:
    job_type: str
    function: Callable[..., Any]
    arguments: Callable[[Job, Any], tuple[Any, ...]]
    """From a job and its context: see `arguments_of`."""
    in_thread: bool
    max_attempts: int | None
    timeout_seconds: float | None
    backoff: Backoff
    limits: tuple[Limit, ...]
    delivery: Delivery
    log_level: Level | None
    captures_logging: bool | None
    model: type[PayloadModel] | None
    """Of its payload."""
    check_payload: bool

    @property
    def name(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"


class Registry:
    """Handlers by job type. Programs use the default one of this module; tests can make their own."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._lifespans: list[Callable[[], AbstractAsyncContextManager[Mapping[str, Any] | None]]] = []
        self.arounds: list[Around] = []
        self._schedules: dict[str, Schedule] = {}
        for job_type, function in builtin.HANDLERS.items():
            self.register(job_type)(function)

    def register(
        self,
        job_type: str,
        *,
        max_attempts: int | None = None,
        timeout_seconds: float | None = None,
        backoff: Backoff | float | timedelta | None = None,
        limit: Limit | Sequence[Limit] = (),
        delivery: Delivery = "at_least_once",
        log_level: Level | None = None,
        captures_logging: bool | None = None,
        check_payload: bool = True,
    ) -> Callable[[Function], Function]:
        """The decorated function handles jobs of this type: an `async def`, or a `def`, which runs in a thread.

        `max_attempts`, `timeout_seconds` and `delivery` apply to jobs whose row does not set its own. `backoff`:
        seconds between attempts, or a function of the attempt's number and its error; the default grows from 1 s to an
        hour. `limit`: how many jobs of this type may run or start over all pods; worker processes write it to the table
        when they start, and an operator may change it there. `delivery`: "at_most_once" if the function must not be
        called again for a job once it has started, whatever happens. `log_level`: the lowest level of what is stored of
        its log, or "off". `captures_logging`: also store what it logs through the standard library's logging. Settings
        of the pod have the defaults of these two. `check_payload`: False if the model of the payload accepts more than
        its JSON Schema says, such as "5" for an integer; then submissions are not checked.
        """

        if not isinstance(job_type, str):
            raise HandlerInvalid(_name(job_type), "@register has no job_type", 'Write @register("its.type").')

        def decorate(function: Function) -> Function:
            name = _name(function)
            if job_type in self._handlers:
                raise HandlerTwice(job_type, self._handlers[job_type].name, name)
            _check(name, job_type, function, max_attempts, timeout_seconds, delivery)
            if log_level is not None and log_level not in LEVELS:
                levels = ", ".join(LEVELS)
                raise HandlerInvalid(name, f"{log_level!r} is not a valid log_level", f"Use one of {levels}.")
            self._handlers[job_type] = Handler(
                job_type,
                function,
                arguments_of(function),
                not inspect.iscoroutinefunction(function),
                max_attempts,
                timeout_seconds,
                _DEFAULT_BACKOFF if backoff is None else backoff if callable(backoff) else fixed(backoff),
                (limit,) if isinstance(limit, Limit) else tuple(limit),
                delivery,
                log_level,
                captures_logging,
                payload_model(function),
                check_payload,
            )
            return function

        return decorate

    def get_handler(self, job_type: str) -> Handler:
        """The handler of this job type. Raises HandlerUnknown, which lists the types that have one."""
        try:
            return self._handlers[job_type]
        except KeyError:
            raise HandlerUnknown(job_type, list(self._handlers)) from None

    def lifespan(self, function: Callable[[], AsyncIterator[Mapping[str, Any] | None]]) -> Callable[[], Any]:
        """The decorated async generator opens what handlers share, once per worker process.

        It yields a mapping, which handlers find in `ctx.resources`, and closes what it opened after the yield.
        """
        self._lifespans.append(asynccontextmanager(function))
        return function

    def around(self, function: Callable[[Job, Any], AsyncIterator[None]]) -> Callable[[Job, Any], Any]:
        """The decorated async generator runs around each attempt: the handler runs at its `yield`, and what the handler
        raises is raised there.

        For error trackers, timers and the like. An attempt whose error it swallows has failed all the same.
        """
        self.arounds.append(asynccontextmanager(function))
        return function

    def schedule(self, name: str, job_type: str, **options: Unpack[ScheduleOptions]) -> None:
        """Declares a recurring job, by `cron` or `every`.

        Worker processes write it to the table when they start; docs/schedules.md describes its effect.
        """
        if name in self._schedules:
            raise ScheduleTwice(name)
        try:
            self._schedules[name] = Schedule(name=name, job_type=job_type, **options)
        except TypeError as error:
            known = ", ".join(field.name for field in fields(Schedule))
            why = str(error).removeprefix("Schedule.__init__() ")
            raise ScheduleInvalid(name, why, f"A schedule has: {known}.") from None

    @property
    def schedules(self) -> list[Schedule]:
        return list(self._schedules.values())

    @property
    def is_empty(self) -> bool:
        """It has only the handlers that every worker has."""
        return self._handlers.keys() <= builtin.HANDLERS.keys()

    @property
    def job_types(self) -> dict[str, int | None]:
        """Each type, with the attempts that its handler registered."""
        return {job_type: handler.max_attempts for job_type, handler in self._handlers.items()}

    @property
    def captures_logging(self) -> bool:
        """Some handler asks for it."""
        return any(handler.captures_logging for handler in self._handlers.values())

    @property
    def handlers(self) -> list[Handler]:
        return list(self._handlers.values())

    @property
    def limits(self) -> dict[str, tuple[Limit, ...]]:
        """By job type."""
        return {job_type: handler.limits for job_type, handler in self._handlers.items() if handler.limits}

    @asynccontextmanager
    async def resources(self) -> AsyncIterator[dict[str, Any]]:
        """What all lifespans together opened."""
        async with AsyncExitStack() as stack:
            opened: dict[str, Any] = {}
            for lifespan in self._lifespans:
                shared = await stack.enter_async_context(lifespan())
                opened |= shared or {}
            yield opened


def _name(function: Any) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"


def _check(
    name: str, job_type: str, function: Any, max_attempts: int | None, timeout_seconds: float | None, delivery: str
) -> None:
    if not inspect.isroutine(function):
        raise HandlerInvalid(name, "it is not a function", "Put @register(...) above a def or an async def.")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise HandlerInvalid(name, "it is a generator", "Return the result instead of yielding.")
    if not 1 <= len(job_type.encode()) <= 200 or _UNREADABLE.search(job_type):
        remedy = "Use 1 to 200 bytes, no control characters, no space at either end."
        raise HandlerInvalid(name, f"{job_type!r} is not a valid job_type", remedy)
    if max_attempts is not None and max_attempts < 1:
        raise HandlerInvalid(name, "max_attempts is less than 1", "Use 1 for a single attempt.")
    if timeout_seconds is not None and not 0 < timeout_seconds < float("inf"):
        raise HandlerInvalid(name, "timeout_seconds is not a positive number", "Leave it out for no timeout.")
    if delivery not in get_args(Delivery):
        raise HandlerInvalid(name, f"{delivery!r} is not a valid delivery", 'Use "at_least_once" or "at_most_once".')


default = Registry()
register = default.register
get_handler = default.get_handler
lifespan = default.lifespan
around = default.around
schedule = default.schedule


def load(app: str, registry: Registry = default) -> Registry:
    """Imports the module `app`, which registers handlers when it is imported. Also finds it in the working folder."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if "" in app.split("."):
        raise AppInvalid(
            app or "''", "that is not the name of a module", "Name it as it is imported, e.g. shop.handlers."
        )
    try:
        importlib.import_module(app)
    except ModuleNotFoundError as error:
        if error.name and (app == error.name or app.startswith(error.name + ".")):
            raise AppInvalid(
                app,
                "there is no such module",
                f"Run this where it can be imported: {here} and installed packages were searched.",
            ) from None
        raise
    if registry.is_empty:
        raise AppInvalid(
            app,
            "it registers no handler",
            "Decorate functions in it, or in what it imports, with @reactor.register(...).",
        )
    return registry
