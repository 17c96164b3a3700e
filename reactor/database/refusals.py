"""Turns database errors into ReactorErrors that say what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from reactor.database.failures import DRIVER_ERRORS, Failure, classify
from reactor.errors import ConnectionLost, DatabaseRefused, ReactorError


@contextmanager
def refusals_explained() -> Iterator[None]:
    """Database errors raised in the block become ReactorErrors; mistakes of ours pass unchanged."""
    try:
        yield
    except DRIVER_ERRORS as error:
        if isinstance(error, asyncpg.InterfaceError) and classify(error) is Failure.BUG:
            raise
        raise explain(error) from error


def explain(error: Exception) -> ReactorError:
    match error:
        case asyncpg.PostgresError() if error.args and str(error.args[0]).startswith("reactor: "):
            # The schema's checks and triggers provide message and remedy.
            message = str(error.args[0]).removeprefix("reactor: ")
            return DatabaseRefused(f"{message[:1].upper()}{message[1:]}.", getattr(error, "hint", None) or "")
        case asyncpg.InsufficientPrivilegeError():
            return DatabaseRefused(
                f"The database user may not do this: {error}.",
                "Grant it reactor_worker to operate and submit, reactor_producer to submit, reactor_viewer to read.",
            )
        case asyncpg.ReadOnlySQLTransactionError():
            return DatabaseRefused(
                f"The database is read-only: {error}.", "Use the address of the primary, not of a standby."
            )
        case asyncpg.DataError() | asyncpg.CharacterNotInRepertoireError() | asyncpg.UntranslatableCharacterError():
            return DatabaseRefused(
                f"The database can't store a value: {error}.",
                "Check its type and range; text must be valid UTF-8 without NUL.",
            )
        case asyncpg.PostgresConnectionError() | asyncpg.OperatorInterventionError() | asyncpg.InterfaceError():
            return ConnectionLost(str(error))
        case asyncpg.PostgresError():
            return DatabaseRefused(f"The database refused: {error}.", getattr(error, "hint", None) or "")
        case _:
            return ConnectionLost(str(error) or type(error).__name__)
