"""Calls a job's handler once, and tells as a value how that ended."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from typing import Any

from reactor.context import Context
from reactor.describe import describe
from reactor.outcome import Completed, Errored, Fail, Failed, Outcome, Partial, Retry, Snooze, Snoozed
from reactor.registry import Around, Handler
from reactor.signature import PayloadInvalid
from reactor.steps import Summary
from reactor.thread import run_in_thread


async def execute(handler: Handler, context: Context, arounds: Sequence[Around], executor: Executor) -> Outcome:
    """Lets through only what is not the handler's to decide: its cancellation, and a transaction to be run again."""
    job = context.job
    try:
        if arounds:
            returned = await _surrounded(arounds, context, lambda: _call(handler, context, executor))
        else:
            returned = await _call(handler, context, executor)
    except PayloadInvalid as error:
        return Failed(f"The payload does not fit {handler.name}: {error}")
    except Fail as error:
        return Failed(str(error) or "The handler failed without saying why.")
    except Retry as error:
        return Errored(str(error), error.after_seconds)
    except Snooze as error:
        return Snoozed(error.after_seconds, error.message)
    except asyncio.CancelledError:
        if context.cancelled:
            raise
        return Errored(
            "The handler was cancelled from within.", handler.backoff(job.attempts, asyncio.CancelledError())
        )
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        context.note(error)
        if context.to_be_repeated:
            raise
        return _errored(handler, job.attempts, error)
    return _outcome(handler, context, returned)


def _call(handler: Handler, context: Context, executor: Executor) -> Awaitable[Any]:
    if handler.in_thread:
        return run_in_thread(executor, handler.function, lambda sync: handler.arguments(context.job, sync), context)
    called: Awaitable[Any] = handler.function(*handler.arguments(context.job, context))
    return called


async def _surrounded(arounds: Sequence[Around], context: Context, call: Callable[[], Awaitable[Any]]) -> Any:
    raised: BaseException | None = None
    async with AsyncExitStack() as stack:
        for around in arounds:
            await stack.enter_async_context(around(context.job, context))
        try:
            return await call()
        except BaseException as error:
            raised = error
            raise
    # One of them swallowed it; the attempt has failed all the same.
    raise raised


def _outcome(handler: Handler, context: Context, returned: Any) -> Outcome:
    match returned:
        case None | dict():
            return context.outcome(returned)
        case Summary():
            return context.outcome(returned.counts)
        case Completed() | Partial():
            return returned
    if hasattr(returned, "model_dump"):
        return context.outcome(returned.model_dump(mode="json"))
    return Failed(
        f"{handler.name} returned {type(returned).__name__}; a handler returns a dict, a pydantic model, "
        "what ctx.steps(...) returned, Completed(...), Partial(...) or nothing."
    )


def _errored(handler: Handler, attempt: int, error: BaseException) -> Outcome:
    try:
        delay = float(handler.backoff(attempt, error))
    except Exception as mistake:
        return Failed(f"{describe(error)}\n\nAnd its backoff failed: {describe(mistake)}")
    return Errored(describe(error), delay)
