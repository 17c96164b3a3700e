"""Diagnoses the setup and suggests fixes."""

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from uuid import uuid4

import anyio
import asyncpg

from reactor.database import statements
from reactor.database.connection import NEWEST_TESTED_SERVER, Connection, connect
from reactor.database.revision import check_revision
from reactor.database.url import address
from reactor.embedded.locate import Location
from reactor.errors import DatabaseReadOnly, DatabaseUnreachable, EncodingUnsupported, ReactorError, ServerUnsupported
from reactor.settings import unknown_settings
from reactor.suggestion import did_you_mean


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    check: str
    level: Level
    message: str
    remedy: str = ""


_MAX_UNHANDLED_TYPES = 100


@dataclass(frozen=True)
class Limits:
    """Values beyond which a check reports a finding."""

    clock_skew_seconds: float = 2.0
    old_transaction_seconds: float = 300.0
    notification_seconds: float = 2.0


DEFAULT_LIMITS = Limits()


async def diagnose(
    location: Location, environment: Mapping[str, str], limits: Limits = DEFAULT_LIMITS
) -> AsyncIterator[Finding]:
    """Yields findings as the checks complete. Stops early if the server can't be reached."""
    for finding in _settings(environment):
        yield finding
    try:
        async with connect(location.url, name="reactor doctor", prepares=False) as connection:
            facts, skew_seconds = await _server_facts(connection)
            yield _server(location, facts)
            schema = await _schema(connection)
            yield schema
            yield _privileges(facts)
            yield _clock(skew_seconds, limits)
            yield _pooler(location, connection, facts)
            yield await _notifications(location, limits)
            async for finding in _vacuum(connection, facts, limits):
                yield finding
            if schema.level is Level.OK:
                yield await _handlers(connection)
    except (DatabaseUnreachable, ServerUnsupported) as error:
        yield Finding("server", Level.PROBLEM, error.message, error.remedy)


def _settings(environment: Mapping[str, str]) -> list[Finding]:
    return [
        Finding(
            "settings",
            Level.WARNING,
            f"{name} is set, but is not a known setting.",
            f"Did you mean {meant}?" if meant else "docs/settings.md lists all settings.",
        )
        for name, meant in unknown_settings(environment).items()
    ]


async def _server_facts(connection: Connection) -> tuple[asyncpg.Record, float]:
    """Facts about the server, and the seconds its clock is ahead of ours, measured by the fastest of three queries."""
    samples = []
    for _ in range(3):
        sent = time.time()
        facts = await connection.fetchrow(statements.SERVER_FACTS)
        received = time.time()
        assert facts is not None
        samples.append((received - sent, facts, facts["now"].timestamp() - (sent + received) / 2))
    _, facts, skew_seconds = min(samples, key=lambda sample: sample[0])
    return facts, skew_seconds


def _server(location: Location, facts: asyncpg.Record) -> Finding:
    kind = "embedded " if location.embedded else ""
    message = f"{kind}{address(location.url)}, version {facts['version']}, as user {facts['user_name']}."
    if facts["is_standby"]:
        return Finding(
            "server",
            Level.PROBLEM,
            f"{message} It is a read-only standby.",
            "Connect to its primary.",
        )
    if facts["is_read_only"]:
        error = DatabaseReadOnly()
        return Finding("server", Level.PROBLEM, f"{message} {error.message}", error.remedy)
    if facts["encoding"] != "UTF8":
        unsupported = EncodingUnsupported(facts["encoding"])
        return Finding("server", Level.PROBLEM, f"{message} {unsupported.message}", unsupported.remedy)
    if int(facts["version"].split(".")[0].split()[0]) > NEWEST_TESTED_SERVER:
        return Finding("server", Level.WARNING, f"{message} reactor is tested up to {NEWEST_TESTED_SERVER}.")
    return Finding("server", Level.OK, message)


async def _schema(connection: Connection) -> Finding:
    try:
        return Finding("schema", Level.OK, f"at revision {await check_revision(connection)}, the newest.")
    except ReactorError as error:
        return Finding("schema", Level.PROBLEM, error.message, error.remedy)
    except asyncpg.InsufficientPrivilegeError as error:
        return Finding("schema", Level.PROBLEM, f"can't be read: {error}.", "Grant the user one of reactor's roles.")


def _privileges(facts: asyncpg.Record) -> Finding:
    member_of = facts["member_of"]
    roles = f"is a member of {', '.join(member_of)}" if member_of else "has none of reactor's roles"
    message = f"{facts['user_name']} {roles}."
    may_migrate = "reactor_owner" in member_of or (facts["may_create_roles"] and facts["may_create_schema"])
    if may_migrate:
        return Finding("privileges", Level.OK, f"{message} It may migrate and run jobs.")
    if "reactor_worker" in member_of:
        return Finding("privileges", Level.OK, f"{message} It may run jobs, but not migrate.")
    return Finding(
        "privileges",
        Level.PROBLEM,
        f"{message} It may neither migrate nor run jobs.",
        f"Have an administrator run: grant reactor_worker to {facts['user_name']};  (to migrate: reactor_owner)",
    )


def _clock(skew_seconds: float, limits: Limits) -> Finding:
    ahead = f"{abs(skew_seconds):.3f} s {'behind' if skew_seconds > 0 else 'ahead of'} the database's"
    if abs(skew_seconds) <= limits.clock_skew_seconds:
        return Finding("clock", Level.OK, f"this machine's clock is {ahead}.")
    return Finding(
        "clock",
        Level.WARNING,
        f"this machine's clock is {ahead}. Jobs run correctly, since the database's clock decides, but "
        "timestamps in logs are misleading.",
        "Synchronize both clocks with NTP.",
    )


def _pooler(location: Location, connection: Connection, facts: asyncpg.Record) -> Finding:
    """Behind a pooler, the process id received at connect differs from that of the backend."""
    if connection.get_server_pid() == facts["backend_pid"]:
        return Finding("pooler", Level.OK, "none.")
    if location.listen_url != location.url:
        return Finding(
            "pooler", Level.OK, f"found; notifications are received directly from {address(location.listen_url)}."
        )
    return Finding(
        "pooler",
        Level.WARNING,
        "the connection goes through a pooler. In transaction mode it loses notifications, and jobs wait for the next "
        "poll.",
        "Set REACTOR_LISTEN_URL to the server's own URL.",
    )


async def _notifications(location: Location, limits: Limits) -> Finding:
    channel = f"reactor_doctor_{uuid4().hex}"
    arrived = anyio.Event()
    try:
        async with connect(location.listen_url, name="reactor doctor", prepares=False) as listener:

            def receive(*_: object) -> None:
                arrived.set()

            await listener.add_listener(channel, receive)
            async with connect(location.url, name="reactor doctor", prepares=False) as notifier:
                started = time.perf_counter()
                await notifier.execute(statements.SEND_TEST_NOTIFICATION, channel)
                with anyio.move_on_after(limits.notification_seconds):
                    await arrived.wait()
                took_ms = (time.perf_counter() - started) * 1000
            await listener.remove_listener(channel, receive)
    except DatabaseUnreachable as error:
        return Finding("notifications", Level.PROBLEM, error.message, error.remedy)
    if arrived.is_set():
        return Finding("notifications", Level.OK, f"received after {took_ms:.1f} ms.")
    return Finding(
        "notifications",
        Level.PROBLEM,
        f"none received within {limits.notification_seconds:g} s: jobs would wait for the next poll.",
        "Set REACTOR_LISTEN_URL to the server's own URL, bypassing any pooler.",
    )


async def _vacuum(connection: Connection, facts: asyncpg.Record, limits: Limits) -> AsyncIterator[Finding]:
    usage = facts["notification_queue_usage"]
    if usage > 0.5:
        yield Finding(
            "vacuum",
            Level.WARNING,
            f"the server's notification queue is {usage:.0%} full. Inserts fail when it is full.",
            "End the session that listens inside a long transaction (see below or pg_stat_activity).",
        )
    holders = await connection.fetch(statements.OLDEST_TRANSACTIONS, limits.old_transaction_seconds)
    for holder in holders:
        age = f" for {holder['age_seconds'] / 60:.0f} min" if holder["age_seconds"] is not None else ""
        yield Finding(
            "vacuum",
            Level.WARNING,
            f"{holder['holder']} has held back vacuum{age}: claims keep getting slower.",
            f"If it is not needed, run: {holder['remedy']};",
        )
    if not holders:
        minutes = limits.old_transaction_seconds / 60
        yield Finding("vacuum", Level.OK, f"not held back by any transaction older than {minutes:.0f} min.")


async def _handlers(connection: Connection) -> Finding:
    try:
        unhandled = await connection.fetch(statements.UNHANDLED_TYPES, _MAX_UNHANDLED_TYPES)
        known = {record["name"] for record in await connection.fetch(statements.LIST_JOB_TYPES, None)}
    except asyncpg.InsufficientPrivilegeError as error:
        return Finding("handlers", Level.WARNING, f"can't be read: {error}.", "Grant the user one of reactor's roles.")
    if not unhandled:
        return Finding("handlers", Level.OK, "a live pod can run every job that is ready.")
    listed = ", ".join(f"{job_type} in the queue {queue}" for queue, job_type in unhandled[:3])
    more = f" and {len(unhandled) - 3} more" if len(unhandled) > 3 else ""
    hint = "".join(did_you_mean(job_type, known) for _, job_type in unhandled[:3] if job_type not in known)
    return Finding(
        "handlers",
        Level.WARNING,
        f"no live pod can run the ready jobs of these types: {listed}{more}.{hint}",
        "Start a pod that has the handlers and works on the queues; `reactor types` lists what pods have.",
    )
