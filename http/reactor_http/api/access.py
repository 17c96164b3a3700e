"""Who asks, and what they may do."""

import functools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from reactor.operate import Operator
from reactor_http.auth.caller import ANYBODY
from reactor_http.auth.caller import Caller as Caller
from reactor_http.auth.caller import Permission as Permission
from reactor_http.auth.loopback import is_loopback, without_port
from reactor_http.auth.stream_token import BadStreamToken
from reactor_http.problem import Problem
from reactor_http.state import edge_of

Endpoint = Callable[[Request], Awaitable[Response]]

# Set by proxies: behind one every client seems to be on this machine.
_PROXIED = ("x-forwarded-for", "x-forwarded-host", "x-real-ip", "forwarded", "via")
_CONFIGURE = "Configure tokens: `reactor token NAME` makes one; docs/access.md tells the rest."
_MAKE_ANOTHER = "Make a new one: POST /v1/stream-tokens."


def needs(permission: Permission, endpoint: Endpoint) -> Endpoint:
    """The endpoint for callers who have the permission; `caller(request)` tells it who that is."""

    @functools.wraps(endpoint)
    async def guarded(request: Request) -> Response:
        admit(request, permission)
        return await endpoint(request)

    return guarded


def admit(request: Request, permission: Permission) -> Caller:
    """The caller, if they have the permission."""
    return _keep(request, _permitted(_identify(request), permission))


def caller(request: Request) -> Caller:
    """Who was let in."""
    found: Caller = request.state.caller
    return found


def operator(request: Request) -> Operator:
    """The caller, for the audit. Behind a proxy the address is the client's only if uvicorn trusts that proxy."""
    return Operator(caller(request).name, request.client.host if request.client else "unknown")


def visitor(request: Request) -> Caller | None:
    """Who asks; None: somebody who has not yet shown a token where one is needed."""
    if edge_of(request).tokens.are_configured and "authorization" not in request.headers:
        return None
    return _identify(request)


async def stream_caller(request: Request, pipeline_id: UUID | None) -> Caller:
    """Who asks for the stream of this pipeline (None: of all): by a bearer token, or by a stream token in the address.

    For the stream's own limits the name is that of the token which the stream token was made with.
    """
    edge = edge_of(request)
    given = request.query_params.getlist("token")
    if not edge.tokens.are_configured or "authorization" in request.headers or not given:
        return admit(request, Permission.VIEW)
    if len(given) > 1:
        raise Problem(400, "The address has more than one token.")
    try:
        grant = edge.signer.check(given[0])
    except BadStreamToken as error:
        raise _unknown(str(error), _MAKE_ANOTHER) from None
    if grant.expires_at <= await edge.clock.now():
        raise _unknown("The stream token has expired.", _MAKE_ANOTHER)
    maker = next((one for one in edge.tokens.holders(Permission.VIEW) if edge.signer.mark(one) == grant.mark), None)
    if maker is None:
        raise _unknown("The token that this stream token was made with is no longer valid.")
    if grant.pipeline_id is not None and grant.pipeline_id != pipeline_id:
        wanted = "all pipelines" if pipeline_id is None else "this one"
        raise Problem(403, f"The stream token is for another pipeline, not for {wanted}.")
    return _keep(request, replace(maker, permissions=frozenset({Permission.VIEW})))


def _identify(request: Request) -> Caller:
    tokens = edge_of(request).tokens
    if not tokens.are_configured:
        return _neighbour(request)
    given = request.headers.getlist("authorization")
    if not given:
        remedy = "Send it as `Authorization: Bearer TOKEN`."
        raise Problem(401, "This needs a token.", remedy, headers={"WWW-Authenticate": 'Bearer realm="reactor"'})
    if len(given) > 1:
        raise Problem(400, "The request has more than one Authorization header.")
    scheme, _, token = given[0].partition(" ")
    if scheme.lower() != "bearer":
        raise _unknown("The Authorization header is not of the form `Bearer TOKEN`.")
    found = tokens.find(token.strip(" "))
    if found is None:
        raise _unknown("The token is unknown, or was revoked.")
    return found


def _neighbour(request: Request) -> Caller:
    """Without tokens only this machine may ask, and no web page by a name of its own that it points at this machine.

    The server binds to loopback then; an application that mounts us may be reached from anywhere.
    """
    if not request.client or not is_loopback(request.client.host) or any(map(request.headers.__contains__, _PROXIED)):
        detail = "No tokens are configured, so only programs on the server's own machine may ask."
        raise Problem(401, detail, _CONFIGURE, headers={"WWW-Authenticate": 'Bearer realm="reactor"'})
    if not is_loopback(without_port(request.headers.get("host", ""))):
        detail = "No tokens are configured, so the server must be addressed as localhost or 127.0.0.1."
        raise Problem(403, detail, _CONFIGURE)
    return ANYBODY


def _permitted(caller: Caller, permission: Permission) -> Caller:
    if permission in caller.permissions:
        return caller
    challenge = f'Bearer realm="reactor", error="insufficient_scope", scope="{permission}"'
    raise Problem(
        403,
        f"The token {caller.name} has no permission to {permission}.",
        "Use a token that has it, or have it added to this one's entry.",
        headers={"WWW-Authenticate": challenge},
        missing=permission.value,
    )


def _keep(request: Request, caller: Caller) -> Caller:
    request.state.caller = caller
    return caller


def _unknown(detail: str, remedy: str = "") -> Problem:
    return Problem(401, detail, remedy, headers={"WWW-Authenticate": 'Bearer realm="reactor", error="invalid_token"'})
