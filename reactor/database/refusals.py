"""Words what PostgreSQL refuses, so that the reader knows what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from reactor.errors import ConnectionLost, DatabaseRefused, ReactorError


@contextmanager
def refusals_explained() -> Iterator[None]:
    """Errors of the database inside the block come out as ReactorError."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise explain(error) from error


def explain(error: Exception) -> ReactorError:
    match error:
        case asyncpg.PostgresError() if error.args and str(error.args[0]).startswith("reactor: "):
            # The schema's own checks and triggers word both halves themselves.
            message = str(error.args[0]).removeprefix("reactor: ")
            return DatabaseRefused(f"{message[:1].upper()}{message[1:]}.", getattr(error, "hint", None) or "")
        case asyncpg.InsufficientPrivilegeError():
            return DatabaseRefused(
                f"The database user may not do this: {error}.",
                "Grant it reactor_worker to operate and submit, reactor_producer to submit, reactor_viewer to look.",
            )
        case asyncpg.ReadOnlySQLTransactionError():
            return DatabaseRefused(f"Nothing can be written here: {error}.", "Name the primary, not a standby.")
        case asyncpg.DataError() | asyncpg.CharacterNotInRepertoireError() | asyncpg.UntranslatableCharacterError():
            return DatabaseRefused(f"The database can't hold a value: {error}.", "Use valid UTF-8, without NUL.")
        case asyncpg.PostgresConnectionError() | asyncpg.OperatorInterventionError() | asyncpg.InterfaceError():
            return ConnectionLost(str(error))
        case asyncpg.PostgresError():
            return DatabaseRefused(f"The database refused: {error}.", getattr(error, "hint", None) or "")
        case _:
            return ConnectionLost(str(error) or type(error).__name__)
