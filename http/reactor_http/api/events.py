"""The two streams: of one pipeline, and of all."""

from uuid import UUID

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from reactor.feed.cursor import parse
from reactor_http.api.access import Permission, stream_caller
from reactor_http.api.endpoint import Call
from reactor_http.api.read_request import pipeline_id, read_query
from reactor_http.api.responses import Problem
from reactor_http.state import edge_of


class EventsAsked(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    last_event_id: str = ""
    """Where to go on from; the header Last-Event-ID wins. Browsers send that when they reconnect by themselves; a page
    that opens a new stream has only the address."""
    token: str = ""
    """A stream token: browsers can't send headers with an EventSource."""
    follow: bool = False
    """Stay after the pipeline's end, and see whether it is retried."""


async def pipeline_events(request: Request) -> Response:
    return await _stream(request, pipeline_id(request))


async def all_events(request: Request) -> Response:
    return await _stream(request, None)


async def _stream(request: Request, pipeline: UUID | None) -> Response:
    caller = await stream_caller(request, pipeline)
    asked = read_query(request, EventsAsked)
    last_seen = request.headers.get("last-event-id") or asked.last_event_id
    cursor = parse(last_seen)
    reset = "the cursor is none of ours" if last_seen and cursor is None else ""
    if request.method == "HEAD":
        # Nothing would come, and the client would wait for the end of it with its next request.
        return Response(media_type="text/event-stream")
    edge = edge_of(request)
    stream = await edge.streams.open(
        caller.name,
        pipeline,
        cursor,
        reset=reset,
        follows=asked.follow,
        is_welcome=lambda: not edge.tokens.are_configured or edge.tokens.allow(caller, Permission.VIEW),
    )
    return stream or Response(status_code=204)


_REFUSALS = dict.fromkeys((400, 401, 403, 422, 429), Problem)
CALLS = (
    Call(
        "GET",
        "/v1/events",
        all_events,
        "A stream of all pipelines that change",
        None,
        {200: "text/event-stream", 204: None},
        _REFUSALS,
        query=EventsAsked,
        streams=True,
    ),
    Call(
        "GET",
        "/v1/pipelines/{pipeline_id}/events",
        pipeline_events,
        "A stream of a pipeline's jobs and steps as they change; 204: it has ended, and you have seen all of it",
        None,
        {200: "text/event-stream", 204: None},
        _REFUSALS,
        query=EventsAsked,
        streams=True,
    ),
)
