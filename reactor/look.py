"""The documented path of `find_pipeline`."""

from reactor.queries.pipelines import find_pipeline as find_pipeline
