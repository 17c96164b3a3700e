"""Formats errors for people."""

import traceback

_MAX_LENGTH = 8000


def describe(error: BaseException) -> str:
    """The error in one line, followed by its traceback."""
    line = "".join(traceback.format_exception_only(error)).strip()
    frames = "".join(traceback.format_tb(error.__traceback__)[1:])
    text = f"{line}\n\n{frames}".strip()
    return text if len(text) <= _MAX_LENGTH else text[:_MAX_LENGTH] + " …"


def first_line(error: str) -> str:
    """The error without its traceback, for places that have only one line."""
    return error.partition("\n")[0]
