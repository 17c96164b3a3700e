"""Server-sent events: the response that streams, and the registry of open streams."""
