"""Server-sent events: the streaming response, and the registry of open streams.

Imports `reactor.feed`, which supplies the changes. `reactor_http.state` and `metrics` import it.
"""
