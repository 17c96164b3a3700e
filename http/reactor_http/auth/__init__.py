"""Identifies callers: bearer tokens, signed stream tokens, and loopback callers where no tokens are configured.

Imports the engine's settings and errors only. `reactor_http.state`, `api` and `server` import it, and the command
`reactor token`.
"""
