"""Read-only questions: jobs, pipelines, queues, workers, statistics, and why a job does not run.

Imports `database`. The command line and the HTTP API print what these return.
"""
