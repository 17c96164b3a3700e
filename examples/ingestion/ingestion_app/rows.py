"""Reads the rows of uploads and of the upstream system, and says of each bad row what is wrong with it."""

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, Field, ValidationError, ValidationInfo, field_validator

# Without control characters: PostgreSQL stores no NUL.
Text = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]

Known = Collection[str]


class EntryRow(BaseModel):
    unit: Text
    activity: Text
    quantity: Annotated[Decimal, Field(ge=0, max_digits=12, decimal_places=3)]

    @field_validator("unit")
    @classmethod
    def _is_known(cls, unit: str, info: ValidationInfo[Known]) -> str:
        if unit not in info.context:
            raise ValueError("there is no such unit")
        return unit


class FactorRow(BaseModel):
    data_entry_type: Text
    activity: Text
    kg_per_unit: Annotated[Decimal, Field(ge=0, max_digits=12, decimal_places=6)]

    @field_validator("data_entry_type")
    @classmethod
    def _is_of_the_module(cls, name: str, info: ValidationInfo[Known]) -> str:
        if name not in info.context:
            raise ValueError("the module has no such type")
        return name


Row = TypeVar("Row", EntryRow, FactorRow)


class Rows(NamedTuple, Generic[Row]):
    valid: list[Row]
    rejected: dict[int, str]
    """Reasons, by line."""

    @property
    def counts(self) -> dict[str, int]:
        return {"rows": len(self.valid), "rejected": len(self.rejected)}


class FileInvalid(Exception):
    """The file can't be read as a table."""


def check(model: type[Row], rows: Iterable[tuple[int, Mapping[str, Any]]], known: Known) -> Rows[Row]:
    """`rows`: with the line of each. `known`: the units, or types, that rows may name."""
    found: Rows[Row] = Rows([], {})
    for line, row in rows:
        try:
            found.valid.append(model.model_validate(row, context=known))
        except ValidationError as error:
            first = error.errors()[0]
            found.rejected[line] = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return found


def read_csv(content: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file with a header, in UTF-8, with or without a byte order mark."""
    try:
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        for row in reader:
            yield reader.line_num, row
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileInvalid(f"The file is not a CSV file in UTF-8: {error}") from error
