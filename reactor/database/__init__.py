"""Talks to PostgreSQL: connections, LISTEN, wake-ups, retries, statements, migrations. Knows nothing of jobs.

Imports only the values at the root of `reactor`; every other package may import it.
"""
