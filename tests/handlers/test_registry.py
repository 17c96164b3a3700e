"""The registry: one handler per type, and mistakes are reported at registration."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

import reactor
from reactor import Context, Job, Registry, SyncContext
from reactor.errors import AppInvalid, HandlerContextWrong, HandlerInvalid, HandlerTwice, HandlerUnknown, ReactorError
from reactor.handlers import registry
from reactor.handlers.registry import default, load

if TYPE_CHECKING:
    from nowhere import Surroundings  # type: ignore[import-not-found]


class Order(BaseModel):
    year: int


async def first(job: Job) -> None: ...


async def second(job: Job) -> None: ...


def test_a_second_handler_for_a_type_is_refused_naming_both(registry: Registry) -> None:
    """D1"""
    registry.register("csv_ingest")(first)
    with pytest.raises(HandlerTwice) as refused:
        registry.register("csv_ingest")(second)
    assert "test_registry.first already handles 'csv_ingest'" in str(refused.value)
    assert "test_registry.second can't be registered" in str(refused.value)
    assert registry.get_handler("csv_ingest").function is first


def test_the_same_function_may_handle_two_types(registry: Registry) -> None:
    assert registry.register("a")(first) is first, "the function stays what it was"
    registry.register("b", max_attempts=7)(first)
    assert registry.job_types.items() >= {"a": None, "b": 7}.items()


def test_an_unknown_type_raises_and_lists_the_known_types(registry: Registry) -> None:
    """D1"""
    registry.register("csv_ingest")(first)
    with pytest.raises(HandlerUnknown, match="no handler for 'unit_sync'.*\n.*csv_ingest") as unknown:
        registry.get_handler("unit_sync")
    assert isinstance(unknown.value, KeyError)
    assert isinstance(unknown.value, ReactorError)


def test_a_new_registry_is_separate_from_the_default_one(registry: Registry) -> None:
    registry.register("only.here")(first)
    assert "only.here" not in default.job_types
    with pytest.raises(HandlerUnknown):
        reactor.get_handler("only.here")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"job_type": ""}, "'' is not a valid job_type"),
        ({"job_type": "x" * 201}, "is not a valid job_type"),
        ({"job_type": "a\nb"}, "is not a valid job_type"),
        ({"job_type": " a"}, "is not a valid job_type"),
        ({"job_type": 5}, "has no job_type"),
        ({"max_attempts": 0}, "max_attempts is less than 1"),
        ({"delivery": "exactly_once"}, "'exactly_once' is not a valid delivery"),
        ({"timeout_seconds": 0}, "timeout_seconds is not a positive number"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds is not a positive number"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds is not a positive number"),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__ if callable(value) else str(value)),
)
def test_an_invalid_argument_of_register_is_refused(
    registry: Registry, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(HandlerInvalid, match=complaint):
        registry.register(**({"job_type": "work"} | options))(first)
    assert registry.is_empty


def test_register_without_parentheses_is_refused(registry: Registry) -> None:
    """It would register nothing without an error."""
    with pytest.raises(HandlerInvalid, match="test_registry.first .* no job_type"):
        registry.register(first)  # type: ignore[arg-type]


async def generates(job: Job) -> AsyncIterator[int]:
    yield 1


def generates_too(job: Job) -> Iterator[int]:
    yield 1


async def wants_more(job: Job, colour: str) -> None: ...


async def wants_any(*args: Any) -> None: ...


async def wants_named(**kwargs: Any) -> None: ...


async def wants_by_name(job: Job, *, ctx: Context) -> None: ...


class Callee:
    async def __call__(self, job: Job) -> None: ...


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (generates, "it is a generator"),
        (generates_too, "it is a generator"),
        (wants_more, "unsupported parameter 'colour'"),
        (wants_any, "its parameter 'args'"),
        (wants_named, "its parameter 'kwargs'"),
        (wants_by_name, "its parameter 'ctx' can't be given by position"),
        ("no function", "it is not a function"),
        (None, "it is not a function"),
        (Callee(), "it is not a function"),
        (functools.partial(first), "it is not a function"),
        (Callee, "it is not a function"),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__ if callable(value) else str(value)),
)
def test_a_function_that_can_not_be_a_handler_is_refused_saying_why(
    registry: Registry, function: Any, complaint: str
) -> None:
    with pytest.raises(HandlerInvalid, match=complaint) as refused:
        registry.register("work")(function)
    assert refused.value.remedy
    assert registry.is_empty


async def async_with_sync_context(job: Job, ctx: SyncContext) -> None: ...


def thread_with_async_context(job: Job, ctx: Context) -> None: ...


async def async_with_either(ctx: Context | SyncContext) -> None: ...


def thread_with_either(ctx: Context | SyncContext) -> None: ...


async def async_with_optional(ctx: SyncContext | None) -> None: ...


async def async_by_annotation(surroundings: SyncContext) -> None: ...


def thread_with_hidden_name(ctx: hidden.Context) -> None:  # type: ignore[name-defined]  # noqa: F821
    """As after `if TYPE_CHECKING: import …`."""


@pytest.mark.parametrize(
    ("function", "complaint", "remedy"),
    [
        (
            async_with_sync_context,
            "async def, but its parameter 'ctx' is annotated with SyncContext",
            "Annotate it with Context,",
        ),
        (
            async_with_optional,
            "async def, but its parameter 'ctx' is annotated with SyncContext",
            "Annotate it with Context,",
        ),
        (
            async_by_annotation,
            "async def, but its parameter 'surroundings' is annotated with SyncContext",
            "Annotate it with Context,",
        ),
        (
            thread_with_async_context,
            "plain def, but its parameter 'ctx' is annotated with Context",
            "Annotate it with SyncContext,",
        ),
        (
            thread_with_hidden_name,
            "plain def, but its parameter 'ctx' is annotated with Context",
            "Annotate it with SyncContext,",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_handler_with_the_wrong_context_is_refused_saying_which_to_use(
    registry: Registry, function: Any, complaint: str, remedy: str
) -> None:
    with pytest.raises(HandlerContextWrong, match=complaint) as refused:
        registry.register("work")(function)
    assert refused.value.remedy.startswith(remedy)
    assert registry.is_empty


@pytest.mark.parametrize("function", [async_with_either, thread_with_either])
def test_a_handler_that_takes_either_context_is_accepted(registry: Registry, function: Any) -> None:
    registry.register("work")(function)
    assert not registry.is_empty


async def by_names(ctx, job, payload):  # type: ignore[no-untyped-def]
    return {}


async def by_kinds(surroundings: Context, work: Job, order: Order) -> None: ...


def in_thread(order: Order, c: SyncContext) -> None: ...


async def nothing() -> None: ...


async def for_type_checkers(payload: Order, ctx: Surroundings) -> Surroundings: ...


class Service:
    async def method(self, job: Job) -> None: ...


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (by_names, ["context", "job", {"year": 2026}]),
        (by_kinds, ["context", "job", Order(year=2026)]),
        (in_thread, [Order(year=2026), "context"]),
        (nothing, []),
        (Service().method, ["job"]),
    ],
)
def test_parameters_are_matched_by_annotation_or_name(
    registry: Registry, function: Callable[..., Any], given: list[object]
) -> None:
    """By annotation, which is text in this module, or else by name."""
    registry.register("work")(function)
    job = Job(1, "work", {"year": 2026}, *[None] * 13)  # type: ignore[arg-type]
    wanted = [job if one == "job" else one for one in given]
    handler = registry.get_handler("work")
    assert list(handler.arguments(job, "context")) == wanted
    assert handler.in_thread is (function is in_thread)


def test_a_type_known_only_to_type_checkers_does_not_affect_other_parameters(registry: Registry) -> None:
    """Linters move imports there; the payload would be an unvalidated dict."""
    registry.register("work")(for_type_checkers)
    job = Job(1, "work", {"year": 2026}, *[None] * 13)  # type: ignore[arg-type]
    assert registry.get_handler("work").arguments(job, "context") == (Order(year=2026), "context")


def test_the_parameters_of_a_decorated_function_are_found(registry: Registry) -> None:
    @functools.wraps(by_kinds)
    async def decorated(*args: Any) -> None: ...

    registry.register("work")(decorated)
    job = Job(1, "work", {"year": 2026}, *[None] * 13)  # type: ignore[arg-type]
    assert registry.get_handler("work").arguments(job, "context") == ("context", job, Order(year=2026))


# Apps


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], str]]:
    """Writes a module into the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = set(sys.modules)

    def write(name: str, text: str) -> str:
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return name

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_app_is_imported_from_the_working_folder(
    module: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Registry()
    monkeypatch.setattr(registry, "register", mine.register)
    app = module(
        "shop.handlers", "from reactor.handlers.registry import register\nregister('shop.order')(lambda: None)\n"
    )
    assert "shop.order" in load(app, mine).job_types


@pytest.mark.parametrize("app", ["no_such_app", "no_such.app", "shop.no_such_app"])
def test_a_missing_app_is_reported(module: Callable[[str, str], str], app: str) -> None:
    module("shop.handlers", "")
    with pytest.raises(AppInvalid, match=f"The module {app} can't be used: there is no such module") as missing:
        load(app, Registry())
    assert str(Path.cwd()) in missing.value.remedy


@pytest.mark.parametrize("app", ["", ".handlers", "handlers.", "my handlers", "a/b.py"])
def test_an_invalid_module_name_is_refused(module: Callable[[str, str], str], app: str) -> None:
    with pytest.raises(AppInvalid):
        load(app, Registry())


def test_an_app_without_handlers_is_refused(module: Callable[[str, str], str]) -> None:
    with pytest.raises(AppInvalid, match="it registers no handler"):
        load(module("empty_app", "x = 1\n"), Registry())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import not_installed_at_all\n", ModuleNotFoundError),
        ("from reactor import no_such_name\n", ImportError),
        ("1 / 0\n", ZeroDivisionError),
    ],
)
def test_an_error_inside_an_app_is_raised_unchanged(
    module: Callable[[str, str], str], text: str, error: type[Exception]
) -> None:
    """Not hidden behind a message that the app is missing."""
    with pytest.raises(error) as raised:
        load(module("broken_app", text), Registry())
    assert "broken_app.py" in str(raised.traceback[-1].path) or "broken_app" in str(raised.getrepr())
