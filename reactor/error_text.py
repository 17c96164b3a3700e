"""Errors as text that people can use."""

import traceback

_LONGEST_ERROR = 8000


def describe(error: BaseException) -> str:
    """The error in a line, then where it came from."""
    line = "".join(traceback.format_exception_only(error)).strip()
    frames = "".join(traceback.format_tb(error.__traceback__)[1:])
    text = f"{line}\n\n{frames}".strip()
    return text if len(text) <= _LONGEST_ERROR else text[:_LONGEST_ERROR] + " …"


def first_line(error: str) -> str:
    """Without where it came from: a traceback would push all else off the screen."""
    return error.partition("\n")[0]
