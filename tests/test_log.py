"""Logging: one format for all records, JSON unless on a terminal."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from reactor.log import configure_logging, get_logger


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_logs_are_json_unless_on_a_terminal() -> None:
    stream = io.StringIO()
    configure_logging("info", stream)
    get_logger("reactor.test").info("job settled", job_id=7, state="completed")
    logging.getLogger("uvicorn.error").warning("a library's %s", "words")
    ours, theirs = map(json.loads, stream.getvalue().splitlines())
    assert (ours["event"], ours["job_id"], ours["state"], ours["level"]) == ("job settled", 7, "completed", "info")
    assert (theirs["event"], theirs["logger"], theirs["level"]) == ("a library's words", "uvicorn.error", "warning")
    assert ours["timestamp"].endswith("Z")


def test_the_traceback_of_an_error_is_structured() -> None:
    stream = io.StringIO()
    configure_logging("info", stream)
    try:
        raise ValueError("no")
    except ValueError:
        get_logger("reactor.test").exception("handler failed", job_id=7)
    entry = json.loads(stream.getvalue())
    assert entry["exception"][0]["exc_type"] == "ValueError"


def test_records_below_the_level_are_dropped() -> None:
    stream = io.StringIO()
    configure_logging("warning", stream)
    get_logger("reactor.test").info("quiet")
    assert stream.getvalue() == ""


def test_logs_are_readable_on_a_terminal() -> None:
    stream = io.StringIO()
    configure_logging("info", stream, as_json=False)
    get_logger("reactor.test").info("job settled", job_id=7)
    assert "job settled" in stream.getvalue()
    assert "job_id=7" in stream.getvalue()
