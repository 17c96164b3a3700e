"""Runs the application: uvicorn with connection limits, health checks, and the small application of a worker pod.

Imports `metrics` and the application's state. `reactor_http.app` uses the health checks; the command line imports the
rest.
"""
