"""JSON as PostgreSQL's jsonb can hold it."""

import json
import re
from typing import Any

# An escape that is not itself escaped: the text backslash-u0000 is fine, the character NUL is not.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


def encode(value: Any) -> str:
    """Raises ValueError, with a reason, for what jsonb would refuse, so that it can be told whose value it was."""
    try:
        encoded = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if _NUL.search(encoded):
        raise ValueError("a text in it contains the character NUL")
    if _SURROGATE.search(encoded):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text in it contains half a surrogate pair") from None
    return encoded


def storable(text: str) -> str:
    """People's texts come from anywhere: what PostgreSQL's text can't hold is replaced."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def decoded(value: Any) -> Any:
    """A connection may have a codec for jsonb, or not. What Python can't read (too deep, too long) stays text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
