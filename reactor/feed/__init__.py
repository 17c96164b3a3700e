"""Reads what changed since a cursor and hands it to the subscribed streams.

Imports `database`. `reactor_http.stream` and `reactor watch` subscribe to it.
"""
