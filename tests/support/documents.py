"""The code that the documents print."""

import re
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def code_blocks(page: str, language: str) -> list[str]:
    """The blocks of this language, in the order of the page."""
    return re.findall(rf"```{language}\n(.*?)```", (_DOCS / page).read_text(), re.DOTALL)
