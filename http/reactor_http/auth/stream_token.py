"""Short-lived signed tokens for streams: EventSource sends no headers, and addresses end up in histories and logs."""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import struct
from dataclasses import dataclass
from uuid import UUID

from reactor.settings import Settings
from reactor_http.auth.caller import Caller

SHORTEST_SECONDS, LONGEST_SECONDS = 1, 3600
# Part of what is signed, so that no signature made for another purpose with the same secret fits.
_PURPOSE = b"reactor stream token\0"
_MARK_PURPOSE = b"reactor mark of a token\0"
_VERSION = 2
_ONE, _ALL = 1, 0
# Version, one pipeline or all, the end in milliseconds since 1970, the maker's mark; then the pipeline, if it is one.
_HEAD = struct.Struct(">BBQ16s")
_SIGNATURE_BYTES = hashlib.sha256().digest_size
_FORM = re.compile(r"[A-Za-z0-9_-]{40,300}")


class BadStreamToken(Exception):
    """Says what is wrong with it, never what it was."""


@dataclass(frozen=True)
class Grant:
    """What a stream token says."""

    mark: bytes
    """Of the token that it was made with."""
    pipeline_id: UUID | None
    """None: all of them."""
    expires_at: float
    """By the database's clock, in seconds since 1970."""


class Signer:
    """Pods with the same secret accept each other's tokens."""

    def __init__(self, settings: Settings) -> None:
        self.is_shared = settings.secret is not None
        self._key = settings.secret.get_secret_value().encode() if settings.secret else secrets.token_bytes(32)

    def sign(self, maker: Caller, pipeline_id: UUID | None, expires_at: float) -> tuple[str, Grant]:
        ends, mark = round(expires_at * 1000), self.mark(maker)
        body = _HEAD.pack(_VERSION, _ONE if pipeline_id else _ALL, ends, mark)
        body += pipeline_id.bytes if pipeline_id else b""
        return _encode(body + self._signature(body)), Grant(mark, pipeline_id, ends / 1000)

    def mark(self, maker: Caller) -> bytes:
        """Tells whose token it was to us, and nothing to those who find it in an address."""
        return hmac.digest(self._key, _MARK_PURPOSE + maker.digest, "sha256")[:16]

    def check(self, token: str) -> Grant:
        """What it says, if we or another pod with our secret said so. It may have expired."""
        signed = _decode(token)
        body, signature = signed[:-_SIGNATURE_BYTES], signed[-_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(body)):
            raise BadStreamToken("The stream token was not made by this server, or by one with another REACTOR_SECRET.")
        if body[0] != _VERSION:
            raise BadStreamToken(f"The stream token is of version {body[0]}, which this server does not know.")
        _, reach, ends, mark = _HEAD.unpack_from(body)
        return Grant(mark, UUID(bytes=body[_HEAD.size :]) if reach == _ONE else None, ends / 1000)

    def _signature(self, body: bytes) -> bytes:
        return hmac.digest(self._key, _PURPOSE + body, "sha256")


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(token: str) -> bytes:
    malformed = BadStreamToken("The stream token is malformed: POST /v1/stream-tokens makes them.")
    if not _FORM.fullmatch(token):
        raise malformed
    try:
        content = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except binascii.Error:
        raise malformed from None
    # The last character has bits to spare: of the spellings of one token only ours is taken.
    if _encode(content) != token or len(content) <= _SIGNATURE_BYTES:
        raise malformed
    return content
