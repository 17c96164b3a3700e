"""The HTTP server of reactor: JSON API, progress streams, metrics, health checks and the page.

`app.create_app` builds the application, `server.serve` runs it. Imports `reactor`; of `reactor`, only the command line
imports this package.
"""
