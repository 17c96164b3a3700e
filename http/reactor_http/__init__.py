"""The edge of reactor: its HTTP API, progress streams and page."""
