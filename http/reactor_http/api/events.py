"""The endpoints that stream events: of one pipeline, and of all."""

from uuid import UUID

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from reactor.feed.cursor import parse
from reactor_http.api.access import Permission, authorize_stream
from reactor_http.api.endpoint import Endpoint
from reactor_http.api.read_request import pipeline_id, read_query
from reactor_http.api.responses import Problem
from reactor_http.state import state_of


class EventsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    last_event_id: str = ""
    """The cursor to resume from. The header Last-Event-ID, which browsers send when they reconnect, takes precedence; a
    page that opens a new stream can only set the URL."""
    token: str = ""
    """A stream token, since an EventSource can't send headers."""
    follow: bool = False
    """Keep the stream open after the pipeline's end, to see a retry."""


async def pipeline_events(request: Request) -> Response:
    return await _stream(request, pipeline_id(request))


async def all_events(request: Request) -> Response:
    return await _stream(request, None)


async def _stream(request: Request, pipeline: UUID | None) -> Response:
    caller = await authorize_stream(request, pipeline)
    query = read_query(request, EventsQuery)
    last_event_id = request.headers.get("last-event-id") or query.last_event_id
    cursor = parse(last_event_id)
    reset = "the cursor is invalid" if last_event_id and cursor is None else ""
    if request.method == "HEAD":
        # The response would have no end, and the client would wait for it before its next request.
        return Response(media_type="text/event-stream")
    state = state_of(request)
    stream = await state.streams.open(
        caller.name,
        pipeline,
        cursor,
        reset=reset,
        follow=query.follow,
        is_authorized=lambda: not state.tokens.are_configured or state.tokens.allow(caller, Permission.VIEW),
    )
    return stream or Response(status_code=204)


_ERRORS = dict.fromkeys((400, 401, 403, 422, 429), Problem)
ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/events",
        all_events,
        "Stream the changes of all pipelines",
        None,
        {200: "text/event-stream", 204: None},
        _ERRORS,
        query=EventsQuery,
        is_stream=True,
    ),
    Endpoint(
        "GET",
        "/v1/pipelines/{pipeline_id}/events",
        pipeline_events,
        "Stream the changes of a pipeline's jobs and steps; 204: it has ended, and you have received everything",
        None,
        {200: "text/event-stream", 204: None},
        _ERRORS,
        query=EventsQuery,
        is_stream=True,
    ),
)
