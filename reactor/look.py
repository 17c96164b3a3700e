"""The documented path of `find_pipeline`."""

from reactor.queries.jobs import find_pipeline as find_pipeline
