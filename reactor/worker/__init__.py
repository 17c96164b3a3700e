"""The process that claims jobs and runs handlers.

Imports `handlers` and `lifecycle`. Started by `pod`, or inside an application by `reactor.Reactor`.
"""
