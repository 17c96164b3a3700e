"""P1, P2: what a run computes, as the scope of its job. At most one run of a combination is running, and one is
current."""

from typing import NamedTuple, Self
from urllib.parse import quote, unquote


class Combination(NamedTuple):
    target: str
    module: str | None = None
    data_entry_type: str | None = None
    method: str | None = None
    year: int | None = None

    @property
    def scope(self) -> str:
        """Parts that are None are left out, so that they are equal to each other and to nothing else."""
        given = {name: value for name, value in self._asdict().items() if value is not None}
        # Escaped, so that a part can't be read as two.
        return "/".join(f"{name}={quote(str(value), safe='')}" for name, value in given.items())

    @classmethod
    def of(cls, scope: str) -> Self:
        parts = {name: unquote(value) for name, _, value in (part.partition("=") for part in scope.split("/"))}
        year = parts.pop("year", None)
        return cls(**parts, year=None if year is None else int(year))
