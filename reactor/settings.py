"""Everything that can be set from outside, read from the environment once."""

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

PREFIX = "REACTOR_"

# A Kubernetes Service called "reactor" puts variables of these forms into every pod of its namespace,
# REACTOR_PORT=tcp://10.0.0.1:8080 among them: they are nobody's settings.
_KUBERNETES_NAME = re.compile(r"REACTOR_(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP))")
_KUBERNETES_VALUE = re.compile(r"(tcp|udp)://")

_ORIGIN = re.compile(r"(?P<site>(?P<scheme>https?)://([a-z0-9._-]+|\[[0-9a-f:.]+\]))(?P<port>:[0-9]{1,5})?")
_OWN_PORTS = {"http": ":80", "https": ":443"}
_SHORTEST_SECRET = 32


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    parts = tuple(part for part in (p.strip() for p in value.split(",")) if part)
    if not parts:
        raise ValueError("There is no name in it; leave it unset for the default")
    return parts


def _address(value: SecretStr) -> SecretStr:
    if not value.get_secret_value().startswith(("postgresql://", "postgres://")):
        raise ValueError("It must be an address such as postgresql://user:password@host:5432/database")
    return value


def _long_enough(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value()) < _SHORTEST_SECRET:
        raise ValueError(f"It must have at least {_SHORTEST_SECRET} characters; `openssl rand -hex 32` makes one")
    return value


def _origin(value: str) -> str:
    """As browsers send it: small letters, and no port where it is the scheme's own."""
    if value == "*":
        raise ValueError("* would let every page on the web use the API with its visitors' tokens: name the origins")
    found = _ORIGIN.fullmatch(value.lower())
    if not found:
        raise ValueError("An origin is a scheme and a host, as in https://app.example.com or http://localhost:3000")
    return found["site"] + ("" if found["port"] == _OWN_PORTS[found["scheme"]] else found["port"] or "")


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Origins = Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], BeforeValidator(_split)]
Address = Annotated[SecretStr, AfterValidator(_address)]
Secret = Annotated[SecretStr, AfterValidator(_long_enough)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SecondsOrOff = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: Address | None = Field(None, description="PostgreSQL to use; unset: an embedded one is started")
    listen_url: Address | None = Field(None, description="a direct way to the same server, past a pooler")
    poll_seconds: SecondsOrOff = Field(10, description="how often to look for missed notifications; 0 = never")
    lease_seconds: Seconds = Field(60, description="a pod that is silent for so long is taken for dead")
    heartbeat_seconds: Seconds = Field(15, description="how often a pod renews its lease; at most half of it")
    shutdown_grace_seconds: SecondsOrOff = Field(20, description="what running jobs get to end in after SIGTERM")
    on_shutdown: Literal["release", "fail"] = Field("release", description="what becomes of those that did not")
    pod_id: str = Field(default_factory=socket.gethostname, min_length=1, max_length=200, description="this pod's name")
    concurrency: int = Field(10, ge=1, le=10_000, description="jobs at once per worker process")
    queues: Names = Field((), description="comma-separated; empty = all queues")
    host: str = Field("127.0.0.1", description="address the HTTP server binds to")
    port: int = Field(8080, ge=0, le=65535, description="its port; 0 = any free one")
    health_host: str = Field("127.0.0.1", description="address that a pod answers health checks at")
    health_port: int | None = Field(None, ge=0, le=65535, description="its port; unset = it does not; 0 = any free one")
    tokens: SecretStr | None = Field(
        None, description="who may use the HTTP API: entries as `reactor token` prints them"
    )
    tokens_file: Path | None = Field(
        None, description="the same, one a line, in a file that is read again when it changes"
    )
    secret: Secret | None = Field(None, description="signs stream tokens; the same for all pods")
    origins: Origins = Field((), description="comma-separated; pages of other sites that may use the HTTP API")
    max_streams: int = Field(5000, ge=1, le=1_000_000, description="streams open at once per process")
    max_streams_per_token: int = Field(500, ge=1, le=1_000_000, description="of these, for one token's name")
    embedded_dir: Path | None = Field(None, description="where the embedded PostgreSQL keeps its data")
    embedded_version: int = Field(18, description="its major version: 16 or 18, or one installed on this machine")

    @model_validator(mode="after")
    def _lease_outlives_a_lost_heartbeat(self) -> Self:
        if self.heartbeat_seconds * 2 > self.lease_seconds:
            raise ValueError(
                f"{PREFIX}HEARTBEAT_SECONDS ({self.heartbeat_seconds:g}) must be at most half of "
                f"{PREFIX}LEASE_SECONDS ({self.lease_seconds:g}), or one lost heartbeat would cost a live pod its jobs"
            )
        return self


def read_settings(environment: Mapping[str, str] = os.environ, **overrides: Any) -> Settings:
    """The settings of `environment`; overrides that are not None (flags) win. Empty variables count as unset."""
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
        raise SettingsInvalid([_complaint(e["loc"], e["msg"], e["input"]) for e in error.errors()]) from None


def unknown_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str | None]:
    """Variables that look like settings and are none, each with the setting that was probably meant."""
    # The log level is needed before settings can be read, and is the command line's own.
    known = {PREFIX + field.upper() for field in Settings.model_fields} | {PREFIX + "LOG_LEVEL"}
    strange = {
        name
        for name in environment
        if name.startswith(PREFIX)
        and not name.startswith(PREFIX + "TEST_")
        and name not in known
        and not _KUBERNETES_NAME.match(name)
    }
    return {name: next(iter(difflib.get_close_matches(name, known, n=1)), None) for name in sorted(strange)}


def _complaint(where: tuple[int | str, ...], message: str, given: object) -> str:
    message = message.removeprefix("Value error, ")
    if not where:
        return message + "."
    name = PREFIX + str(where[0]).upper()
    shown = "" if name.endswith(("URL", "SECRET", "TOKENS")) else f", not {str(given)!r}"
    return f"{name}: {message[:1].lower()}{message[1:]}{shown}."
