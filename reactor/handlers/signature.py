"""Matches a handler's parameters, by annotation or name, to what it is called with."""

import inspect
import re
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Protocol, TypeGuard

from reactor.errors import HandlerContextWrong, HandlerInvalid
from reactor.handlers.context import Context
from reactor.handlers.sync_context import SyncContext
from reactor.job import Job

_REMEDY = (
    "It takes any of: `job: Job`, `ctx: Context` (`SyncContext` for a plain def), `payload: dict`, "
    "and one parameter annotated with a pydantic model."
)


class PayloadModel(Protocol):
    """A pydantic model class; a protocol, so that reactor does not import pydantic."""

    @classmethod
    def model_validate(cls, obj: Any) -> Any: ...
    @classmethod
    def model_json_schema(cls) -> dict[str, Any]: ...


Argument = Callable[[Job, Any], Any]


class PayloadInvalid(Exception):
    """The payload does not fit the handler's model; the message names the field."""


def arguments_of(function: Callable[..., Any]) -> Callable[[Job, Any], tuple[Any, ...]]:
    """Returns a function that makes, from a job and its context, the arguments of `function`."""
    wanted = [_argument(function, parameter, kind) for parameter, kind in _parameters(function)]
    # Nearly all handlers look like these two, and a list is built for each job otherwise.
    if wanted == [_job, _context]:
        return lambda job, context: (job, context)
    if wanted == [_job]:
        return lambda job, context: (job,)
    return lambda job, context: tuple(make(job, context) for make in wanted)


def payload_model(function: Callable[..., Any]) -> type[PayloadModel] | None:
    """The first of its models: a payload must fit all of them."""
    return next((kind for _, kind in _parameters(function) if _is_model(kind)), None)


def _is_model(kind: Any) -> TypeGuard[type[PayloadModel]]:
    return isinstance(kind, type) and hasattr(kind, "model_validate")


def _parameters(function: Callable[..., Any]) -> list[tuple[inspect.Parameter, Any]]:
    return [(p, _annotation(function, p)) for p in inspect.signature(function).parameters.values()]


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Resolved one by one: an annotation that only type checkers can read must not cost a payload its model."""
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    alone = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        names = getattr(inspect.unwrap(function), "__globals__", {})
        return typing.get_type_hints(alone, names)[parameter.name]
    except NameError:
        return parameter.annotation  # the parameter is matched by its name


def _argument(function: Callable[..., Any], parameter: inspect.Parameter, kind: Any) -> Argument:
    name = f"{function.__module__}.{function.__qualname__}"
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        raise HandlerInvalid(name, f"its parameter {parameter.name!r} can't be given by position", _REMEDY)
    if _is_model(kind):
        return _validated(kind)
    if kind is Job or parameter.name == "job":
        return _job
    if parameter.name in ("ctx", "context") or getattr(kind, "__name__", "").endswith("Context"):
        _check_context(function, name, parameter.name, kind)
        return _context
    if parameter.name == "payload":
        return _payload
    raise HandlerInvalid(name, f"unsupported parameter {parameter.name!r}", _REMEDY)


def _check_context(function: Callable[..., Any], name: str, parameter: str, kind: Any) -> None:
    is_async = inspect.iscoroutinefunction(function)
    right, wrong = (Context, SyncContext) if is_async else (SyncContext, Context)
    if isinstance(kind, str):  # known to type checkers only
        words = re.findall(r"\w+", kind)
        is_wrong = wrong.__name__ in words and right.__name__ not in words
    else:
        kinds = typing.get_args(kind) or (kind,)
        is_wrong = wrong in kinds and right not in kinds
    if is_wrong:
        raise HandlerContextWrong(name, parameter, is_async=is_async)


def _job(job: Job, context: Any) -> Job:
    return job


def _context(job: Job, context: Any) -> Any:
    return context


def _payload(job: Job, context: Any) -> dict[str, Any]:
    return job.payload


def _validated(model: type[PayloadModel]) -> Argument:
    def validate(job: Job, context: Any) -> Any:
        try:
            return model.model_validate(job.payload)
        except ValueError as error:
            raise PayloadInvalid(_complaint(error)) from error

    return validate


def _complaint(error: ValueError) -> str:
    details = getattr(error, "errors", None)
    if details is None:
        return str(error)
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'payload'}: {e['msg']}" for e in details())
