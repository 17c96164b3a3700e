"""Short-lived signed tokens for streams: EventSource sends no headers, and URLs end up in histories and logs."""

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
# Part of the signed text, so that a signature made for another purpose with the same secret does not match.
_PURPOSE = b"reactor stream token\0"
_FINGERPRINT_PURPOSE = b"reactor mark of a token\0"
_VERSION = 2
_ONE, _ALL = 1, 0
# Version, one pipeline or all, expiry in milliseconds since 1970, the issuer's fingerprint; then the pipeline's id.
_HEAD = struct.Struct(">BBQ16s")
_SIGNATURE_BYTES = hashlib.sha256().digest_size
_FORM = re.compile(r"[A-Za-z0-9_-]{40,300}")


class BadStreamToken(Exception):
    """The message says what is wrong with the token and never contains it."""


@dataclass(frozen=True)
class Grant:
    """The content of a stream token."""

    issuer: bytes
    """Fingerprint of the bearer token that created it."""
    pipeline_id: UUID | None
    """None: all pipelines."""
    expires_at: float
    """By the database's clock, in seconds since 1970."""


class Signer:
    """Signs and checks stream tokens. Pods with the same secret accept each other's."""

    def __init__(self, settings: Settings) -> None:
        self.is_shared = settings.secret is not None
        self._key = settings.secret.get_secret_value().encode() if settings.secret else secrets.token_bytes(32)

    def sign(self, issuer: Caller, pipeline_id: UUID | None, expires_at: float) -> tuple[str, Grant]:
        expires_ms, fingerprint = round(expires_at * 1000), self.fingerprint(issuer)
        body = _HEAD.pack(_VERSION, _ONE if pipeline_id else _ALL, expires_ms, fingerprint)
        body += pipeline_id.bytes if pipeline_id else b""
        return _encode(body + self._signature(body)), Grant(fingerprint, pipeline_id, expires_ms / 1000)

    def fingerprint(self, issuer: Caller) -> bytes:
        """Lets pods with our secret recognize the issuer's token; meaningless to anyone else who sees the URL."""
        return hmac.digest(self._key, _FINGERPRINT_PURPOSE + issuer.digest, "sha256")[:16]

    def check(self, token: str) -> Grant:
        """The token's content if it was signed with our secret. Does not check whether it has expired."""
        signed = _decode(token)
        body, signature = signed[:-_SIGNATURE_BYTES], signed[-_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(body)):
            raise BadStreamToken("The stream token was altered, or signed with another REACTOR_SECRET.")
        if body[0] != _VERSION:
            raise BadStreamToken(f"The stream token has version {body[0]}, which this server does not support.")
        _, reach, expires_ms, fingerprint = _HEAD.unpack_from(body)
        return Grant(fingerprint, UUID(bytes=body[_HEAD.size :]) if reach == _ONE else None, expires_ms / 1000)

    def _signature(self, body: bytes) -> bytes:
        return hmac.digest(self._key, _PURPOSE + body, "sha256")


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(token: str) -> bytes:
    malformed = BadStreamToken("The stream token is malformed.")
    if not _FORM.fullmatch(token):
        raise malformed
    try:
        content = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except binascii.Error:
        raise malformed from None
    # The last character has unused bits: of the possible spellings of a token only the one we wrote is accepted.
    if _encode(content) != token or len(content) <= _SIGNATURE_BYTES:
        raise malformed
    return content
