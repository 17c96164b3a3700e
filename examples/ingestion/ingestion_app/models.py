"""The tables of the application, in a schema of their own beside reactor's."""

from datetime import datetime
from decimal import Decimal
from typing import ClassVar

from sqlalchemy import (
    BigInteger,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    MetaData,
    Numeric,
    Text,
    UniqueConstraint,
    func,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SCHEMA = "ingestion"


class Base(DeclarativeBase):
    metadata = MetaData(schema=SCHEMA, naming_convention={"ix": "%(table_name)s_%(column_0_N_name)s"})
    type_annotation_map: ClassVar = {str: Text, int: BigInteger, datetime: DateTime(timezone=True)}


class Module(Base):
    """A part of the carbon report, such as travel."""

    __tablename__ = "modules"

    name: Mapped[str] = mapped_column(primary_key=True)


class DataEntryType(Base):
    """A kind of activity in a module, such as plane."""

    __tablename__ = "data_entry_types"

    name: Mapped[str] = mapped_column(primary_key=True)
    module: Mapped[str] = mapped_column(ForeignKey(Module.name))


class Unit(Base):
    """An organisational unit whose activities are reported."""

    __tablename__ = "units"

    code: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]


class Upload(Base):
    """A file as it was uploaded. It is in the database because any pod may ingest it."""

    __tablename__ = "uploads"

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    file_name: Mapped[str]
    content: Mapped[bytes] = mapped_column(LargeBinary)
    uploaded_at: Mapped[datetime] = mapped_column(server_default=func.now())


class RejectedRow(Base):
    """A row of an upload that was left out, and why."""

    __tablename__ = "rejected_rows"

    # Not a foreign key: reactor prunes jobs on its own schedule.
    job_id: Mapped[int] = mapped_column(primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True)
    reason: Mapped[str]


class Factor(Base):
    """What one unit of an activity emits."""

    __tablename__ = "factors"
    __table_args__ = (UniqueConstraint("data_entry_type", "year", "activity"),)

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    data_entry_type: Mapped[str] = mapped_column(ForeignKey(DataEntryType.name))
    year: Mapped[int]
    activity: Mapped[str]
    kg_per_unit: Mapped[Decimal] = mapped_column(Numeric(12, 6))
    is_stale: Mapped[bool]
    """It has changed since the emissions of its type were calculated."""


class DataEntry(Base):
    """One row of activity data."""

    __tablename__ = "data_entries"
    __table_args__ = (Index(None, "data_entry_type", "year"),)

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    data_entry_type: Mapped[str] = mapped_column(ForeignKey(DataEntryType.name))
    year: Mapped[int]
    method: Mapped[str]
    unit: Mapped[str] = mapped_column(ForeignKey(Unit.code))
    activity: Mapped[str]
    quantity: Mapped[Decimal] = mapped_column(Numeric(12, 3))
    job_id: Mapped[int] = mapped_column(index=True)


class Emission(Base):
    """What a data entry emits."""

    __tablename__ = "emissions"

    data_entry_id: Mapped[int] = mapped_column(ForeignKey(DataEntry.id, ondelete="CASCADE"), primary_key=True)
    factor_id: Mapped[int] = mapped_column(ForeignKey(Factor.id))
    kg: Mapped[Decimal] = mapped_column(Numeric(24, 9))


class Report(Base):
    """The emissions of a module in a year."""

    __tablename__ = "reports"

    module: Mapped[str] = mapped_column(ForeignKey(Module.name), primary_key=True)
    year: Mapped[int] = mapped_column(primary_key=True)
    total_kg: Mapped[Decimal | None] = mapped_column(Numeric(24, 9))
    """NULL: being calculated. A total that exists is right."""
