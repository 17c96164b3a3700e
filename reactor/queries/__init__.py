"""Read-only queries: jobs, pipelines, queues, workers, statistics, and why a job is not running.

Imports `database`. Imported by the command line, the HTTP API and `reactor.look`.
"""
