"""The JSON API: one module per group of endpoints, and what all of them share.

Imports `auth` and the state of the application; only `reactor_http.app` imports it.
"""
