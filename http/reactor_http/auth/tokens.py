"""The bearer tokens that open the API: kept as hashes, in the settings or in a file that may change."""

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
# What RFC 6750 allows, and no longer than anybody's token is.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{1,512}=*")
_LOOK_EVERY_SECONDS = 1.0
_MOST_BYTES = 1_000_000

_Entries = tuple[tuple[bytes, Caller], ...]


def make_token(name: str, permissions: Iterable[Permission]) -> tuple[str, str]:
    """A new token, and the entry that lets it in. Being long and random, it needs no slow hash."""
    # The prefix is for those who search repositories and logs for secrets.
    token = "reactor_" + secrets.token_urlsafe(32)
    given = set(permissions)
    allowed = "+".join(permission for permission in Permission if permission in given)
    return token, f"{name}:{allowed}:{_digest(token).hex()}"


class Tokens:
    """A file is looked at again, at most once a second, so that tokens come and go without a restart."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._fixed: _Entries = ()
        self._file = settings.tokens_file
        self._clock = clock
        if settings.tokens is not None:
            entries, complaints = _read(settings.tokens.get_secret_value(), "REACTOR_TOKENS")
            self._fixed = _checked(entries, complaints, "REACTOR_TOKENS")
        self._from_file: _Entries = ()
        self._version: object = None
        self._looked_at = clock()
        if self._file is not None:
            self._version = _version(self._file)
            self._from_file = _checked(*_read_file(self._file), _named(self._file))
        self.are_configured = bool(settings.tokens or self._file)

    def find(self, token: str) -> Caller | None:
        """Whose token this is. Takes as long for a good one as for a bad one."""
        if not _TOKEN.fullmatch(token):
            return None
        digest = _digest(token)
        found = None
        for known, caller in self._entries():
            if hmac.compare_digest(known, digest):
                found = caller
        return found

    def allow(self, caller: Caller, permission: Permission) -> bool:
        """Whether this caller's token has the permission: no longer, once it is revoked."""
        return any(hmac.compare_digest(one.digest, caller.digest) for one in self.holders(permission))

    def holders(self, permission: Permission) -> Iterator[Caller]:
        return (caller for _, caller in self._entries() if permission in caller.permissions)

    def _entries(self) -> _Entries:
        if self._file is not None and self._clock() - self._looked_at >= _LOOK_EVERY_SECONDS:
            self._looked_at = self._clock()
            self._look_again(self._file)
        return self._fixed + self._from_file

    def _look_again(self, file: Path) -> None:
        version = _version(file)
        if version == self._version:
            return
        self._version = version
        entries, complaints = _read_file(file)
        if complaints:
            log.error("tokens file is broken; the tokens it had stay in force", file=str(file), complaints=complaints)
        else:
            self._from_file = entries
            log.info("tokens read again", file=str(file), names=sorted({caller.name for _, caller in entries}))


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
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            return (), [f"{_named(file)} is larger than {_MOST_BYTES} bytes."]
        return _read(content.decode(), _named(file))
    except OSError as error:
        return (), [f"{_named(file)} can't be read: {os.strerror(error.errno or 0)}."]
    except UnicodeDecodeError:
        return (), [f"{_named(file)} is not UTF-8 text."]


def _named(file: Path) -> str:
    return f"REACTOR_TOKENS_FILE ({file})"


def _read(text: str, source: str) -> tuple[_Entries, list[str]]:
    """The entries, and what is wrong with others. A broken one may be a token put in by mistake: it is not shown."""
    entries: list[tuple[bytes, Caller]] = []
    complaints: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        for word in re.split(r"[\s,]+", line.partition("#")[0].strip()):
            if not word:
                continue
            entry = _entry(word)
            if isinstance(entry, str):
                complaints.append(f"{source}, line {number}: {entry}")
            elif any(entry[0] == other for other, _ in entries):
                complaints.append(f"{source}, line {number}: this token ({entry[1].name}) is there twice.")
            else:
                entries.append(entry)
    return tuple(entries), complaints


def _entry(word: str) -> tuple[bytes, Caller] | str:
    name, _, rest = word.partition(":")
    allowed, _, digest = rest.partition(":")
    if not (NAME.fullmatch(name) and allowed and digest):
        return "an entry is NAME:PERMISSION+PERMISSION:HASH, as `reactor token NAME` prints it."
    unknown = set(allowed.split("+")) - set(Permission)
    if unknown:
        return f"{name} has a permission that does not exist; there are {', '.join(Permission)}."
    if not _HASH.fullmatch(digest):
        return f"{name}'s token is not given as its SHA-256 in 64 small hexadecimal digits."
    known = bytes.fromhex(digest)
    return known, Caller(name, frozenset(Permission(word) for word in allowed.split("+")), known)


def _checked(entries: _Entries, complaints: list[str], source: str) -> _Entries:
    if not entries and not complaints:
        complaints = [f"{source} holds no token: `reactor token NAME` makes one."]
    if complaints:
        raise SettingsInvalid(complaints)
    return entries
