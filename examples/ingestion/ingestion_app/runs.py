"""The payloads of the jobs."""

from typing import Annotated

from pydantic import BaseModel, Field

# Without control characters: PostgreSQL stores no NUL.
Name = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[^\x00-\x1f\x7f]+$")]
Year = Annotated[int, Field(ge=1990, le=2200)]


class ModuleRun(BaseModel):
    """About a module in a year: a recalculation of all types, or the report."""

    module: Name
    year: Year

    @property
    def tags(self) -> list[str]:
        """All jobs of a pipeline inherit them."""
        return [f"module={self.module}", f"year={self.year}"]


class TypeRun(ModuleRun):
    """About one data entry type."""

    data_entry_type: Name


class EntriesUpload(TypeRun):
    upload_id: int


class FactorsUpload(ModuleRun):
    upload_id: int
