"""Keeps worker processes running and their leases alive, and recovers what dead ones held.

Imports `worker`. The command line, the HTTP edge and `reactor.Reactor` build on it.
"""
