"""The two streams: of one pipeline, and of all."""

from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from reactor.cursor import parse
from reactor.errors import PipelineUnknown
from reactor_http.access import stream_caller
from reactor_http.edge import edge_of
from reactor_http.problem import Problem


async def pipeline_events(request: Request) -> Response:
    try:
        pipeline_id = UUID(request.path_params["pipeline_id"])
    except ValueError:
        raise Problem(
            422, "That is no pipeline's id.", "An id looks like 0199c9f2-6a3e-7c1b-9f7e-3f1f6d0c2a11."
        ) from None
    return await _stream(request, pipeline_id)


async def all_events(request: Request) -> Response:
    return await _stream(request, None)


async def _stream(request: Request, pipeline_id: UUID | None) -> Response:
    caller = stream_caller(request, pipeline_id)
    # Browsers send the header when they reconnect by themselves; a page that opens a new stream has only the address.
    last_seen = request.headers.get("last-event-id") or request.query_params.get("last_event_id") or ""
    cursor = parse(last_seen)
    reset = "the cursor is none of ours" if last_seen and cursor is None else ""
    follows = request.query_params.get("follow", "") in ("1", "true")
    try:
        stream = await edge_of(request).streams.open(caller.name, pipeline_id, cursor, reset=reset, follows=follows)
    except PipelineUnknown as error:
        raise Problem(404, error.message, "It may have been pruned.") from None
    return stream or Response(status_code=204)
