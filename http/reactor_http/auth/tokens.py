"""The bearer tokens of the API, stored as hashes in the settings or in a file that is reloaded when it changes."""

import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from reactor.errors import SettingsInvalid
from reactor.log import get_logger
from reactor.settings import Settings
from reactor_http.auth.caller import Caller, Permission

log = get_logger(__name__)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
# The characters that RFC 6750 allows, at a length that no real token exceeds.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{1,512}=*")
_RECHECK_SECONDS = 1.0
_MAX_FILE_BYTES = 1_000_000

_Entries = tuple[tuple[bytes, Caller], ...]


def make_token(name: str, permissions: Iterable[Permission]) -> tuple[str, str]:
    """A new token and its entry. The token is long and random, so it needs no slow hash."""
    # The prefix lets secret scanners find it in repositories and logs.
    token = "reactor_" + secrets.token_urlsafe(32)
    given = set(permissions)
    allowed = "+".join(permission for permission in Permission if permission in given)
    return token, f"{name}:{allowed}:{_digest(token).hex()}"


class Tokens:
    """The configured tokens. A tokens file is checked at most once a second, so that changes need no restart."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._fixed: _Entries = ()
        self._file = settings.tokens_file
        self._clock = clock
        if settings.tokens is not None:
            entries, errors = _parse(settings.tokens.get_secret_value(), "REACTOR_TOKENS")
            self._fixed = _checked(entries, errors, "REACTOR_TOKENS")
        self._from_file: _Entries = ()
        self._version: object = None
        self._checked_at = clock()
        if self._file is not None:
            self._version = _version(self._file)
            self._from_file = _checked(*_read_file(self._file), _source(self._file))
        self.are_configured = bool(settings.tokens or self._file)

    def find(self, token: str) -> Caller | None:
        """The holder of this token. Takes equally long for valid and invalid tokens."""
        if not _TOKEN.fullmatch(token):
            return None
        digest = _digest(token)
        found = None
        for known, caller in self._entries():
            if hmac.compare_digest(known, digest):
                found = caller
        return found

    def allow(self, caller: Caller, permission: Permission) -> bool:
        """Whether the caller's token still exists and has the permission."""
        return any(hmac.compare_digest(one.digest, caller.digest) for one in self.holders(permission))

    def holders(self, permission: Permission) -> Iterator[Caller]:
        return (caller for _, caller in self._entries() if permission in caller.permissions)

    def _entries(self) -> _Entries:
        if self._file is not None and self._clock() - self._checked_at >= _RECHECK_SECONDS:
            self._checked_at = self._clock()
            self._reload_if_changed(self._file)
        return self._fixed + self._from_file

    def _reload_if_changed(self, file: Path) -> None:
        version = _version(file)
        if version == self._version:
            return
        self._version = version
        entries, errors = _read_file(file)
        if errors:
            log.error("tokens file is invalid; keeping the previous tokens", file=str(file), errors=errors)
        else:
            self._from_file = entries
            log.info("tokens file reloaded", file=str(file), names=sorted({caller.name for _, caller in entries}))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _version(file: Path) -> object:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read_file(file: Path) -> tuple[_Entries, list[str]]:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            return (), [f"{_source(file)} is larger than {_MAX_FILE_BYTES} bytes."]
        return _parse(content.decode(), _source(file))
    except OSError as error:
        return (), [f"{_source(file)} can't be read: {os.strerror(error.errno or 0)}."]
    except UnicodeDecodeError:
        return (), [f"{_source(file)} is not UTF-8 text."]


def _source(file: Path) -> str:
    return f"REACTOR_TOKENS_FILE ({file})"


def _parse(text: str, source: str) -> tuple[_Entries, list[str]]:
    """The valid entries, and an error for each other one. An invalid entry may be a token: errors never contain it."""
    entries: list[tuple[bytes, Caller]] = []
    errors: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        for word in re.split(r"[\s,]+", line.partition("#")[0].strip()):
            if not word:
                continue
            entry = _parse_entry(word)
            if isinstance(entry, str):
                errors.append(f"{source}, line {number}: {entry}")
            elif any(entry[0] == other for other, _ in entries):
                errors.append(f"{source}, line {number}: this token ({entry[1].name}) is listed twice.")
            else:
                entries.append(entry)
    return tuple(entries), errors


def _parse_entry(word: str) -> tuple[bytes, Caller] | str:
    """The entry, or what is wrong with it."""
    name, _, rest = word.partition(":")
    allowed, _, digest = rest.partition(":")
    if not (NAME.fullmatch(name) and allowed and digest):
        return "an entry has the form NAME:PERMISSION+PERMISSION:HASH, as printed by `reactor token NAME`."
    unknown = set(allowed.split("+")) - set(Permission)
    if unknown:
        return f"{name} has an unknown permission; the permissions are {', '.join(Permission)}."
    if not _HASH.fullmatch(digest):
        return f"the hash of {name}'s token must be its SHA-256 in 64 lower-case hexadecimal digits."
    known = bytes.fromhex(digest)
    return known, Caller(name, frozenset(Permission(word) for word in allowed.split("+")), known)


def _checked(entries: _Entries, errors: list[str], source: str) -> _Entries:
    if not entries and not errors:
        errors = [f"{source} contains no token. Create one with `reactor token NAME`."]
    if errors:
        raise SettingsInvalid(errors)
    return entries
