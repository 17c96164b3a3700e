"""Authenticates the caller of a request and checks their permission."""

import functools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from reactor.operate import Operator
from reactor_http.auth.caller import ANONYMOUS
from reactor_http.auth.caller import Caller as Caller
from reactor_http.auth.caller import Permission as Permission
from reactor_http.auth.loopback import is_loopback, without_port
from reactor_http.auth.stream_token import BadStreamToken
from reactor_http.problem import Problem
from reactor_http.state import state_of

RequestHandler = Callable[[Request], Awaitable[Response]]

# Set by proxies. Behind one, every client seems to be on this machine.
_PROXY_HEADERS = ("x-forwarded-for", "x-forwarded-host", "x-real-ip", "forwarded", "via")
_CONFIGURE_TOKENS = "Configure tokens: create one with `reactor token NAME`; see docs/access.md."
_RENEW = "Create a new one: POST /v1/stream-tokens."


def require(permission: Permission, handler: RequestHandler) -> RequestHandler:
    """The handler, for callers with this permission; `caller(request)` returns the caller."""

    @functools.wraps(handler)
    async def checked(request: Request) -> Response:
        authorize(request, permission)
        return await handler(request)

    return checked


def authorize(request: Request, permission: Permission) -> Caller:
    """Returns the caller if they have the permission."""
    return _set_caller(request, _check_permission(_authenticate(request), permission))


def caller(request: Request) -> Caller:
    """The caller that `authorize` let in."""
    found: Caller = request.state.caller
    return found


def operator(request: Request) -> Operator:
    """The caller, for the audit. Behind a proxy, the address is the client's only if uvicorn trusts that proxy."""
    return Operator(caller(request).name, request.client.host if request.client else "unknown")


def submitted_by(request: Request, declared: str | None) -> str | None:
    """What is stored of who submits a job. A caller may say on whose behalf, but not hide its own name."""
    found = caller(request)
    if found is ANONYMOUS:
        return declared
    return found.name if declared is None else f"{declared} via {found.name}"


def caller_if_known(request: Request) -> Caller | None:
    """The caller; None if a token is required and the request has none."""
    if state_of(request).tokens.are_configured and "authorization" not in request.headers:
        return None
    return _authenticate(request)


async def authorize_stream(request: Request, pipeline_id: UUID | None) -> Caller:
    """Returns the caller if they may stream this pipeline (None: all): by bearer token, or by stream token in the URL.

    The stream counts towards the limit of the token that the stream token was created with.
    """
    state = state_of(request)
    given = request.query_params.getlist("token")
    if not state.tokens.are_configured or "authorization" in request.headers or not given:
        return authorize(request, Permission.VIEW)
    if len(given) > 1:
        raise Problem(400, "The URL has more than one token.")
    try:
        grant = state.signer.check(given[0])
    except BadStreamToken as error:
        raise _unauthorized(str(error), _RENEW) from None
    if grant.expires_at <= await state.clock.now():
        raise _unauthorized("The stream token has expired.", _RENEW)
    holders = state.tokens.holders(Permission.VIEW)
    issuer = next((one for one in holders if state.signer.fingerprint(one) == grant.issuer), None)
    if issuer is None:
        raise _unauthorized("The token that created this stream token is no longer valid.")
    if grant.pipeline_id is not None and grant.pipeline_id != pipeline_id:
        requested = "all pipelines" if pipeline_id is None else "this one"
        raise Problem(403, f"The stream token is for another pipeline, not for {requested}.")
    return _set_caller(request, replace(issuer, permissions=frozenset({Permission.VIEW})))


def _authenticate(request: Request) -> Caller:
    tokens = state_of(request).tokens
    if not tokens.are_configured:
        return _loopback_caller(request)
    given = request.headers.getlist("authorization")
    if not given:
        remedy = "Send one as `Authorization: Bearer TOKEN`."
        challenge = {"WWW-Authenticate": 'Bearer realm="reactor"'}
        raise Problem(401, "A token is required.", remedy, headers=challenge)
    if len(given) > 1:
        raise Problem(400, "The request has more than one Authorization header.")
    scheme, _, token = given[0].partition(" ")
    if scheme.lower() != "bearer":
        raise _unauthorized("The Authorization header is not of the form `Bearer TOKEN`.")
    found = tokens.find(token.strip(" "))
    if found is None:
        raise _unauthorized("The token is unknown or has been revoked.")
    return found


def _loopback_caller(request: Request) -> Caller:
    """Without tokens, only programs on this machine may call.

    The server binds to loopback in that case, but an application that mounts reactor may bind to any address. The Host
    check stops web pages whose own host name resolves to 127.0.0.1.
    """
    is_proxied = any(header in request.headers for header in _PROXY_HEADERS)
    if not request.client or not is_loopback(request.client.host) or is_proxied:
        detail = "No tokens are configured, so the server accepts loopback connections only."
        raise Problem(401, detail, _CONFIGURE_TOKENS, headers={"WWW-Authenticate": 'Bearer realm="reactor"'})
    if not is_loopback(without_port(request.headers.get("host", ""))):
        detail = "No tokens are configured, so the server must be addressed as localhost or 127.0.0.1."
        raise Problem(403, detail, _CONFIGURE_TOKENS)
    return ANONYMOUS


def _check_permission(caller: Caller, permission: Permission) -> Caller:
    if permission in caller.permissions:
        return caller
    challenge = f'Bearer realm="reactor", error="insufficient_scope", scope="{permission}"'
    raise Problem(
        403,
        f"The token {caller.name} lacks the permission {permission}.",
        "Use a token that has it, or ask for it to be added to this token's entry.",
        headers={"WWW-Authenticate": challenge},
        missing=permission.value,
    )


def _set_caller(request: Request, caller: Caller) -> Caller:
    request.state.caller = caller
    return caller


def _unauthorized(detail: str, remedy: str = "") -> Problem:
    return Problem(401, detail, remedy, headers={"WWW-Authenticate": 'Bearer realm="reactor", error="invalid_token"'})
