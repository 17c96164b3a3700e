"""JSON in the form that PostgreSQL's jsonb can store."""

import json
import re
from typing import Any

# An escape that is not itself escaped: the text backslash-u0000 is fine, the character NUL is not.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
# Made once: json.dumps makes an encoder for each value, which takes longer than to encode a short one.
_encode = json.JSONEncoder(allow_nan=False).encode
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


def encode(value: Any) -> str:
    """Raises ValueError, with a reason, for a value that jsonb would refuse: here it is known which value it was."""
    try:
        encoded = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if "\\u" not in encoded:
        return encoded
    if _NUL.search(encoded):
        raise ValueError("a text in it contains the character NUL")
    if _SURROGATE.search(encoded):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text in it contains half a surrogate pair") from None
    return encoded


def storable(text: str) -> str:
    """Replaces what PostgreSQL's text type can't store."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def ascii_only(value: Any) -> Any:
    """Escapes characters that a database with another encoding than UTF8 may lack, in all texts of a JSON value."""
    match value:
        case str():
            return value.encode("ascii", "backslashreplace").decode()
        case dict():
            return {ascii_only(name): ascii_only(item) for name, item in value.items()}
        case list() | tuple():
            return [ascii_only(item) for item in value]
        case _:
            return value


def decoded(value: Any) -> Any:
    """A connection may have a codec for jsonb. A value that Python can't parse (too deep, too long) stays text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
