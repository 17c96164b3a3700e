"""Read-only queries: jobs, pipelines, queues, workers, statistics, and why a job is not running.

Imports `database`. Imported by `reactor.look`, the HTTP API and the command line.
"""
