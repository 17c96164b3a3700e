"""Reads the URL of a database, with the parameters that libpq, providers and other drivers put into it.

Nothing here shows a part of a URL that may belong to a password. No parameter that asks for security is ignored.
"""

import configparser
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlencode

from reactor.errors import DatabaseUnreachable

_SHAPE = "postgresql://user:password@host:5432/database"
_PARSED = re.compile(
    r"postgres(?:ql)?(?:\+\w+)?://(?P<authority>[^/?#]*)(?:/(?P<database>[^?#]*))?(?:\?(?P<query>.*))?"
)
_HOSTS = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:,@]*)(:\d*)?(,(\[[0-9A-Fa-f:.%]+\]|[^\[\]:,@]*)(:\d*)?)*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_ENCODE = (
    "In user and password, write @ as %40, / as %2F, : as %3A, # as %23, ? as %3F and % as %25: "
    "python3 -c 'import getpass, urllib.parse as u; print(u.quote(getpass.getpass(), \"\"))' encodes a password."
)

# What reactor does itself, what its driver has no use for, and what other drivers read from the same URL.
_DROPPED = frozenset(
    {
        *("application_name", "fallback_application_name", "client_encoding", "load_balance_hosts", "gssdelegation"),
        *("sslcompression", "pgbouncer", "schema", "connection_limit", "pool_timeout", "pool_size", "max_overflow"),
        *("socket_timeout", "statement_cache_size", "prepared_statement_cache_size", "prepared_statement_name_func"),
        *("prepared_statements", "prepareThreshold", "prepare_threshold", "preparedStatementCacheQueries"),
        *("default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity", "pool_max_conns"),
        *("pool_min_conns", "pool_mode", "single_use_connections", "uselibpqcompat", "supa", "workaround"),
    }
)
_AUTHORITY = ".postgresql/root.crt"
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_VERIFY = (
    "Use sslmode=verify-full, with which the server's certificate proves that it is the right server, and sslrootcert="
    "system if a public authority has signed it."
)
# Parameters that ask for more than the driver can do, with the values that ask for nothing, and what to do instead.
_REFUSED = {
    "channel_binding": ({"disable", "prefer"}, f"Remove it. {_VERIFY}"),
    "gssencmode": ({"disable", "prefer"}, "Remove it, and use sslmode=require."),
    "require_auth": (set[str](), f"Remove it. {_VERIFY}"),
    "requirepeer": (set[str](), "Remove it."),
    "requiressl": ({"0"}, "Use sslmode=require."),
    "sslaccept": ({"accept_invalid_certs"}, _VERIFY),
    "sslcertmode": ({"allow"}, "Remove it."),
    "sslcrldir": (set[str](), "Use sslcrl, with one file."),
    "sslsni": ({"1"}, "Remove it."),
    "hostaddr": (set[str](), "Use host."),
    "replication": ({"false", "off", "no", "0"}, "Remove it: it is for replicas."),
}
# The values that the driver knows.
_CHOICES = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "target_session_attrs": ("any", "primary", "standby", "read-write", "read-only", "prefer-standby"),
}
_SSL = {"true": "require", "1": "require", "on": "require", "false": "disable", "0": "disable", "off": "disable"}
_LARGEST = 2**31 - 1
# With the default, and the largest value that Linux takes.
_KEEPALIVES = {
    "keepalives_idle": ("TCP_KEEPIDLE", 10, 32_767),
    "keepalives_interval": ("TCP_KEEPINTVL", 3, 32_767),
    "keepalives_count": ("TCP_KEEPCNT", 3, 127),
    "tcp_user_timeout": ("TCP_USER_TIMEOUT", 15_000, _LARGEST),
}


@dataclass(frozen=True)
class Target:
    """How to connect."""

    dsn: str = field(repr=False)
    connect_timeout: float | None
    keepalives: Mapping[str, int]
    """Socket options of TCP; empty: the kernel does not probe the server."""
    direct_tls: bool | None
    """False where there is no TLS, whatever PGSSLNEGOTIATION says."""


class _Parts:
    """The parts of a URL, decoded."""

    def __init__(self, url: str) -> None:
        found = _PARSED.fullmatch(url)
        if not found:
            remedy = _ENCODE if "#" in url else ""
            raise _invalid("PostgreSQL", f"the URL does not have the form {_SHAPE}", remedy)
        userinfo, at, hosts = found["authority"].rpartition("@")
        self.hosts: str = hosts
        if "@" in userinfo or set(userinfo) & set("[]") or not _HOSTS.fullmatch(self.hosts):
            raise _invalid("PostgreSQL", "user, password, host or port in the URL can't be read", _ENCODE)
        self.database: str = found["database"] or ""
        # After a password with / or ?, what follows looks like a database or a parameter with an @.
        if "@" in self.database:
            raise _invalid("PostgreSQL", "there is an @ in the name of the database", _ENCODE)
        user, _, password = userinfo.partition(":")
        self.user = unquote(user) if at else ""
        self.password = unquote(password)
        self.query: dict[str, str] = {}
        for pair in filter(None, (found["query"] or "").split("&")):
            name, equals, value = pair.partition("=")
            if not equals or not _NAME.fullmatch(name):
                raise _invalid("PostgreSQL", "what follows the ? in the URL is not name=value&name=value", _ENCODE)
            self.query[name] = unquote(value)

    @property
    def where(self) -> str:
        hosts = unquote(self.hosts) or self.query.get("host") or "localhost"
        return f"PostgreSQL at {hosts}{'/' + self.database if self.database else ''}"

    def joined(self, *, password: bool = True) -> str:
        userinfo = quote(self.user, safe="")
        if password and self.password:
            userinfo += ":" + quote(self.password, safe="")
        query = {name: value for name, value in self.query.items() if password or name != "password"}
        encoded = urlencode(query, safe="/", quote_via=quote)
        at = "@" if userinfo else ""
        database = f"/{self.database}" if self.database else ""
        return f"postgresql://{userinfo}{at}{self.hosts}{database}{'?' + encoded if encoded else ''}"


def address(url: str) -> str:
    """The server and database of `url`, for messages: without user and password."""
    try:
        return _Parts(url).where
    except DatabaseUnreachable as error:
        return error.address


def database(url: str) -> str:
    """The name of the database in `url`."""
    return unquote(_Parts(url).database)


def without_password(url: str) -> str:
    """For psql."""
    return _Parts(url).joined(password=False)


def with_database(url: str, database: str) -> str:
    """The same server, another database."""
    parts = _Parts(url)
    parts.database = quote(database, safe="")
    return parts.joined()


def parse(url: str, environment: Mapping[str, str] = os.environ) -> Target:
    """Raises DatabaseUnreachable, with a remedy, for a URL that can't be used, and for parameters that the driver can't
    honour. Parameters that are unknown here are settings of the server, which refuses those that it doesn't know."""
    parts = _Parts(url)
    _add_service(parts, environment)
    where, query = parts.where, parts.query
    for name, (harmless, remedy) in _REFUSED.items():
        value = query.pop(name, None)
        if value and value not in harmless:
            raise _invalid(where, f"the URL's parameter {name}={value} is not supported", remedy)
    for name in _DROPPED & query.keys():
        del query[name]
    if mode := query.pop("ssl", None):
        query.setdefault("sslmode", _SSL.get(mode.lower(), mode))
    for name, choices in _CHOICES.items():
        if query.get(name) and query[name] not in choices:
            raise _invalid(
                where, f"the URL's parameter {name}={query[name]} is not known", f"Use {', '.join(choices)}."
            )
    _check_files(where, query, environment)
    connect_timeout = _number(where, query, "connect_timeout", 0)
    keeps_alive = _number(where, query, "keepalives", 1)
    keepalives = {
        option: number
        for name, (option, default, largest) in _KEEPALIVES.items()
        if (number := _number(where, query, name, default, largest))
    }
    parts.query = {name: value for name, value in query.items() if value}
    direct_tls = False if query.get("sslmode") == "disable" else None
    return Target(parts.joined(), connect_timeout or None, keepalives if keeps_alive else {}, direct_tls)


def _add_service(parts: _Parts, environment: Mapping[str, str]) -> None:
    """What the URL leaves open comes from the service that it names, or, if it names no host either, PGSERVICE."""
    has_host = parts.hosts or "host" in parts.query
    service = parts.query.pop("service", None) or (None if has_host else environment.get("PGSERVICE"))
    if not service:
        return
    file = Path(environment.get("PGSERVICEFILE") or Path.home() / ".pg_service.conf")
    services = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        services.read(file, encoding="utf-8")
        found = dict(services[service])
    except (KeyError, configparser.Error):
        raise _invalid(
            f"service {service}", f"{file} does not define it", "Define it there, or set PGSERVICEFILE."
        ) from None
    if parts.database:
        found.pop("dbname", None)
    if parts.user:
        found.pop("user", None)
    if parts.password:
        found.pop("password", None)
    if parts.hosts:
        found.pop("host", None)
        found.pop("port", None)
    parts.query = {name: value for name, value in found.items() if value} | parts.query


def _check_files(where: str, query: dict[str, str], environment: Mapping[str, str]) -> None:
    """asyncpg's error for a missing file names neither the file nor the parameter."""
    if query.get("sslrootcert") == "system":
        if query.setdefault("sslmode", "verify-full") != "verify-full":
            raise _invalid(where, "sslrootcert=system needs sslmode=verify-full", "Change one of them.")
        query["sslrootcert"] = ssl.get_default_verify_paths().cafile or "the system's certificates"
    variables = {name: environment.get(f"PG{name.upper()}", "") for name in _FILES}
    mode = query.get("sslmode") or environment.get("PGSSLMODE", "")
    has_authority = query.get("sslrootcert") or variables["sslrootcert"] or _has_default_authority()
    if mode.startswith("verify-") and not has_authority:
        raise _invalid(
            where,
            f"sslmode={mode} needs the certificate of an authority: there is no sslrootcert, and no ~/{_AUTHORITY}",
            "Add sslrootcert=FILE, or sslrootcert=system for the authorities that this machine trusts.",
        )
    for name in _FILES:
        file = query.get(name) or (variables[name] if mode != "disable" else "")
        if file and not Path(file).is_file():
            raise _invalid(
                where, f"{name}: there is no file {file}", f"Correct {name} in the URL, or PG{name.upper()}."
            )


def _has_default_authority() -> bool:
    try:
        return (Path.home() / _AUTHORITY).is_file()
    except RuntimeError:  # an account without a home, as in some containers
        return False


def _number(where: str, query: dict[str, str], name: str, default: int, largest: int = _LARGEST) -> int:
    value = query.pop(name, None)
    if not value:
        return default
    try:
        number = int(value)
    except ValueError:
        raise _invalid(where, f"the URL's parameter {name} is not a whole number", "Correct or remove it.") from None
    if number > largest:
        raise _invalid(where, f"the URL's parameter {name} is greater than {largest}", "Correct or remove it.")
    return max(number, 0)  # below 0, libpq has no timeout either


def _invalid(where: str, why: str, remedy: str) -> DatabaseUnreachable:
    return DatabaseUnreachable(where, why, f"{remedy} Check REACTOR_DATABASE_URL.".strip())
