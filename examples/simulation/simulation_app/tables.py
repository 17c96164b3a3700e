"""The tables of the results, in a schema of their own beside reactor's."""

import datetime
from decimal import Decimal
from typing import ClassVar

from sqlalchemy import BigInteger, Column, Date, ForeignKey, ForeignKeyConstraint, MetaData, Numeric, Table, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

SCHEMA = "simulation"


class Base(DeclarativeBase):
    metadata = MetaData(schema=SCHEMA, naming_convention={"ix": "%(table_name)s_%(column_0_N_name)s"})
    type_annotation_map: ClassVar = {
        str: Text,
        int: BigInteger,
        datetime.date: Date,
        # Prices are in cents, and quantities are whole numbers.
        Decimal: Numeric(16, 2),
    }


JOBS = Table("jobs", Base.metadata, Column("id", BigInteger, primary_key=True), schema="reactor")
"""What the results refer to. It is migrated by reactor."""


def of_model_day() -> ForeignKeyConstraint:
    columns = ["job_id", "date", "model"]
    return ForeignKeyConstraint(columns, [f"{SCHEMA}.model_days.{name}" for name in columns], ondelete="CASCADE")


class Position(Base):
    """What a model holds at the end of a date."""

    __tablename__ = "positions"
    __table_args__ = (of_model_day(),)

    job_id: Mapped[int] = mapped_column(primary_key=True)
    date: Mapped[datetime.date] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(primary_key=True)
    symbol: Mapped[str] = mapped_column(primary_key=True)
    quantity: Mapped[int]
    price: Mapped[Decimal]


class Trade(Base):
    """What a model bought, or sold if the quantity is negative."""

    __tablename__ = "trades"
    __table_args__ = (of_model_day(),)

    job_id: Mapped[int] = mapped_column(primary_key=True)
    date: Mapped[datetime.date] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    symbol: Mapped[str]
    quantity: Mapped[int]
    price: Mapped[Decimal]


class Result(Base):
    """J9: the result of a model-day. The results of a job are removed with it, by `reactor prune` too."""

    __tablename__ = "model_days"

    job_id: Mapped[int] = mapped_column(ForeignKey(JOBS.c.id, ondelete="CASCADE"), primary_key=True)
    date: Mapped[datetime.date] = mapped_column(primary_key=True, index=True)
    model: Mapped[str] = mapped_column(primary_key=True, index=True)
    cash: Mapped[Decimal]
    value: Mapped[Decimal]
    """Of the cash and of all positions."""
    day_return: Mapped[Decimal] = mapped_column(Numeric(12, 8))
    """The change of the value since the date before, as a fraction."""
    turnover: Mapped[Decimal] = mapped_column(server_default="0")
    """What was bought and sold."""
    positions: Mapped[list[Position]] = relationship(lazy="raise", order_by=Position.symbol)
    trades: Mapped[list[Trade]] = relationship(lazy="raise", order_by=Trade.number)
