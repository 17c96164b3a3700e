"""Calls a job's handler once, and tells as a value how that ended."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from reactor.database.jsonb import encode
from reactor.error_text import describe
from reactor.handlers.context import Context
from reactor.handlers.registry import Around, Handler
from reactor.handlers.signature import PayloadInvalid
from reactor.handlers.steps import Summary
from reactor.handlers.sync_context import run_in_thread
from reactor.outcome import Completed, Errored, Fail, Failed, Outcome, Partial, Retry, Snooze, Snoozed, in_seconds


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
        return errored(handler, job.attempts, asyncio.CancelledError("The handler was cancelled from within."))
    except BaseException as error:
        # SystemExit, and whatever else libraries (pytest's, for one) hide from `except Exception`.
        if context.cancelled:
            raise asyncio.CancelledError from error
        context.note(error)
        if context.to_be_repeated:
            raise
        return errored(handler, job.attempts, error)
    if context.lost_its_transaction:
        return Failed(
            f"{handler.name} ended its transaction with COMMIT or ROLLBACK as SQL. It is committed when the handler "
            "returns; what was done before can't be undone."
        )
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
    """Looks at once whether it can be stored: what is settled as done takes children and data with it."""
    if isinstance(returned, Summary):
        returned = returned.counts
    if returned is None:
        return context.outcome(None)
    said = isinstance(returned, Completed | Partial)
    outcome: Completed | Partial = returned if said else Completed(returned)
    result: Any = outcome.result
    message: Any = outcome.message
    try:
        if hasattr(result, "model_dump"):
            result = result.model_dump(mode="json")
        if isinstance(result, dict):
            encode(result)
    except ValueError as error:
        return Failed(f"What {handler.name} returned is no JSON: {error}")
    for found, allowed in ((result, dict), (message, str)):
        if found is not None and not isinstance(found, allowed):
            return Failed(
                f"{handler.name} returned {type(found).__name__}; a handler returns a dict, a pydantic model, nothing, "
                "what ctx.steps(...) returned, or a result and a text in Completed(...) or Partial(...)."
            )
    if not said:
        return context.outcome(result)
    return outcome if result is outcome.result else replace(outcome, result=result)


def errored(handler: Handler, attempt: int, error: BaseException) -> Errored | Failed:
    """The one place that asks the handler's policy, which is the user's code and may be wrong."""
    try:
        delay = in_seconds(handler.backoff(attempt, error))
    except Exception as mistake:
        return Failed(f"{describe(error)}\n\nAnd its backoff failed: {describe(mistake)}")
    return Errored(describe(error), delay)
