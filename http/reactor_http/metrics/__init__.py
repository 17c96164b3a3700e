"""Prometheus metrics: the endpoint /metrics, and the metrics of workers and streams.

Imports the application's state. `reactor_http.app` and `server` import it. Other code adds metrics through
`reactor_http.measure`.
"""
