"""Documented import path of `find_pipeline`; the code is in `reactor.queries.pipelines`."""

from reactor.queries.pipelines import find_pipeline as find_pipeline
