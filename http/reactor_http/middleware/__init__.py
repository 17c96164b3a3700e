"""ASGI middleware around every request: security headers, cross-origin rules, request counts.

Imports nothing of this package but `problem`. `reactor_http.app` installs it; `metrics` reads the request counts.
"""
