"""Follows a stream with httpx-sse: python httpx_sse_client.py ADDRESS TOKEN. Prints each event as a line of JSON."""

import json
import sys
import time

import httpx
from httpx_sse import connect_sse

address, token = sys.argv[1:]
cursor, has_ended = "", False
# The server sends a comment after 15 s of silence.
with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=30) as client:
    while not has_ended:
        try:
            with connect_sse(client, "GET", address, headers={"Last-Event-ID": cursor}) as source:
                if source.response.status_code == 204:
                    break
                source.response.raise_for_status()
                for event in source.iter_sse():
                    print(json.dumps([event.event, event.data]), flush=True)
                    cursor = event.id or cursor
                    has_ended = event.event == "end"
        except httpx.HTTPError:
            time.sleep(0.5)
