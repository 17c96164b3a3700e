"""Recurring jobs: their declaration, their due times, and the submission of their jobs.

Imports `database`. Imported by `operate`, `handlers`, `worker` and `pod`.
"""
