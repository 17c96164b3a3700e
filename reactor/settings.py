"""All settings: read once from the environment, validated, and overridden by command-line flags."""

import difflib
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from reactor.errors import SettingsInvalid
from reactor.job_log import Level, LogOptions

PREFIX = "REACTOR_"

# A Kubernetes Service called "reactor" puts variables of these forms into every pod of its namespace,
# including REACTOR_PORT=tcp://10.0.0.1:8080. They are not settings.
_KUBERNETES_NAME = re.compile(r"REACTOR_(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP))")
_KUBERNETES_VALUE = re.compile(r"(tcp|udp)://")

_ORIGIN = re.compile(r"(?P<site>(?P<scheme>https?)://([a-z0-9._-]+|\[[0-9a-f:.]+\]))(?P<port>:[0-9]{1,5})?")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_MIN_SECRET_LENGTH = 32
_URL = re.compile(r"postgres(ql)?(\+\w+)?://")  # with the driver of SQLAlchemy's form, postgresql+asyncpg://


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    parts = tuple(part for part in (p.strip() for p in value.split(",")) if part)
    if not parts:
        raise ValueError("It contains no name; leave it unset for the default")
    return parts


def _address(value: SecretStr) -> SecretStr:
    if not _URL.match(value.get_secret_value()):
        raise ValueError("It must be a URL such as postgresql://user:password@host:5432/database")
    return value


def _long_enough(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value()) < _MIN_SECRET_LENGTH:
        raise ValueError(f"It must have at least {_MIN_SECRET_LENGTH} characters; `openssl rand -hex 32` generates one")
    return value


def _origin(value: str) -> str:
    """The origin as browsers send it: in lower case, without the scheme's default port."""
    if value == "*":
        raise ValueError(
            "* would let every page on the web use the API with its visitors' tokens; list the origins instead"
        )
    found = _ORIGIN.fullmatch(value.lower())
    if not found:
        raise ValueError("An origin is a scheme and a host, as in https://app.example.com or http://localhost:3000")
    return found["site"] + ("" if found["port"] == _DEFAULT_PORTS[found["scheme"]] else found["port"] or "")


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Origins = Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], BeforeValidator(_split)]
Address = Annotated[SecretStr, AfterValidator(_address)]
Secret = Annotated[SecretStr, AfterValidator(_long_enough)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SecondsOrOff = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: Address | None = Field(
        None, description="URL of the PostgreSQL database; unset: an embedded server is started"
    )
    listen_url: Address | None = Field(
        None, description="URL for LISTEN and migrations, if database_url goes through a pooler"
    )
    poll_seconds: SecondsOrOff = Field(10, description="seconds between polls for missed notifications; 0 = no polling")
    lease_seconds: Seconds = Field(60, description="seconds without a heartbeat after which a pod is considered dead")
    heartbeat_seconds: Seconds = Field(15, description="seconds between heartbeats; at most half of lease_seconds")
    shutdown_grace_seconds: SecondsOrOff = Field(
        20, description="seconds that running jobs get to finish after SIGTERM"
    )
    on_shutdown: Literal["release", "fail"] = Field(
        "release", description="state of jobs still running after that: pending again, or failed"
    )
    pod_id: str = Field(default_factory=socket.gethostname, min_length=1, max_length=200, description="this pod's name")
    concurrency: int = Field(10, ge=1, le=10_000, description="jobs that a worker process runs at the same time")
    queues: Names = Field(
        (), description="queues to work on, comma-separated, each with its slots if limited (a,b:2); empty = all queues"
    )
    host: str = Field("127.0.0.1", description="address that the HTTP server binds to")
    port: int = Field(8080, ge=0, le=65535, description="port of the HTTP server; 0 = any free port")
    health_host: str = Field("127.0.0.1", description="address that a pod serves health checks on")
    health_port: int | None = Field(
        None, ge=0, le=65535, description="port of the health checks; unset = not served; 0 = any free port"
    )
    tokens: SecretStr | None = Field(
        None, description="tokens of the HTTP API: entries printed by `reactor token`, comma-separated"
    )
    tokens_file: Path | None = Field(None, description="file with one entry per line; reread when it changes")
    secret: Secret | None = Field(None, description="key that signs stream tokens; the same on all servers")
    origins: Origins = Field((), description="origins of other sites that may use the HTTP API, comma-separated")
    max_streams: int = Field(5000, ge=1, le=1_000_000, description="maximum number of open streams per server process")
    max_streams_per_token: int = Field(
        500, ge=1, le=1_000_000, description="maximum number of open streams per token name"
    )
    job_log_level: Level = Field("info", description="lowest level that is stored of what handlers log; off = nothing")
    job_log_max_lines: int = Field(
        10_000, ge=1, le=1_000_000, description="lines that are stored of each attempt: its first and its last ones"
    )
    job_log_max_bytes: int = Field(2_000_000, ge=1, le=100_000_000, description="bytes that are stored of them")
    job_log_max_attempts: int = Field(
        10, ge=1, le=1000, description="attempts of a job whose lines are kept: the newest ones"
    )
    job_log_captures_logging: bool = Field(
        False, description="also store what handlers log through the standard library's logging"
    )
    embedded_dir: Path | None = Field(None, description="data folder of the embedded PostgreSQL")
    embedded_version: int = Field(
        18, description="major version of the embedded PostgreSQL: 16, 18, or one installed on this machine"
    )

    @property
    def logs(self) -> LogOptions:
        return LogOptions(
            self.job_log_level,
            self.job_log_max_lines,
            self.job_log_max_bytes,
            self.job_log_max_attempts,
            self.job_log_captures_logging,
        )

    @model_validator(mode="after")
    def _lease_survives_a_lost_heartbeat(self) -> Self:
        if self.heartbeat_seconds * 2 > self.lease_seconds:
            raise ValueError(
                f"{PREFIX}HEARTBEAT_SECONDS ({self.heartbeat_seconds:g}) must be at most half of "
                f"{PREFIX}LEASE_SECONDS ({self.lease_seconds:g}), so that a live pod survives one lost heartbeat"
            )
        return self


def read_settings(environment: Mapping[str, str] = os.environ, **overrides: Any) -> Settings:
    """Reads the settings from `environment`. Overrides (flags) win unless they are None; empty variables are unset."""
    values: dict[str, Any] = {}
    for field in Settings.model_fields:
        value = environment.get(PREFIX + field.upper(), "")
        if value and not (field in ("port", "health_port") and _KUBERNETES_VALUE.match(value)):
            values[field] = value
    if "pod_id" not in values and environment.get("HOSTNAME"):
        values["pod_id"] = environment["HOSTNAME"]
    values |= {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsInvalid([_problem(e["loc"], e["msg"], e["input"]) for e in error.errors()]) from None


def unknown_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str | None]:
    """Variables with the prefix that are not settings, each with the setting that was probably meant."""
    # The log level is read by the command line, before the settings.
    known = {PREFIX + field.upper() for field in Settings.model_fields} | {PREFIX + "LOG_LEVEL"}
    unknown = {
        name
        for name in environment
        if name.startswith(PREFIX)
        and not name.startswith(PREFIX + "TEST_")
        and name not in known
        and not _KUBERNETES_NAME.match(name)
    }
    return {name: next(iter(difflib.get_close_matches(name, known, n=1)), None) for name in sorted(unknown)}


def _problem(field: tuple[int | str, ...], message: str, given: object) -> str:
    message = message.removeprefix("Value error, ")
    if not field:
        return message + "."
    name = PREFIX + str(field[0]).upper()
    shown = "" if name.endswith(("URL", "SECRET", "TOKENS")) else f", not {str(given)!r}"
    return f"{name}: {message[:1].lower()}{message[1:]}{shown}."
