"""reactor's tables for SQLAlchemy: what a producer writes, and what it may want to read."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, DateTime, FetchedValue, ForeignKey, Identity, MetaData, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    metadata = MetaData(schema="reactor")


class Job(Base):
    __tablename__ = "jobs"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    job_type: Mapped[str] = mapped_column(Text)
    # FetchedValue: the database has a default. The column is left out unless it is set, and read back.
    payload: Mapped[dict[str, Any]] = mapped_column(JSONB(none_as_null=True), server_default=FetchedValue())
    pipeline_id: Mapped[UUID] = mapped_column(server_default=FetchedValue())
    queue: Mapped[str] = mapped_column(Text, server_default=FetchedValue())
    priority: Mapped[int] = mapped_column(server_default=FetchedValue())
    run_after: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    max_attempts: Mapped[int | None]
    timeout_seconds: Mapped[float | None]
    tags: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=FetchedValue())
    scope: Mapped[str | None] = mapped_column(Text)
    exclusive: Mapped[bool] = mapped_column(server_default=FetchedValue())
    idempotency_key: Mapped[str | None] = mapped_column(Text)

    # Written by the engine.
    state: Mapped[str] = mapped_column(Text, server_default=FetchedValue())
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())
    created_by: Mapped[str] = mapped_column(Text, server_default=FetchedValue())
    finished_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())
    progress: Mapped[float | None] = mapped_column(server_default=FetchedValue())
    result: Mapped[Any | None] = mapped_column(JSONB, server_default=FetchedValue())
    error: Mapped[str | None] = mapped_column(Text, server_default=FetchedValue())

    dependencies: Mapped[list["Dependency"]] = relationship(
        back_populates="job", foreign_keys="Dependency.job_id", lazy="raise_on_sql"
    )


class Dependency(Base):
    """`job` waits for `upstream`."""

    __tablename__ = "dependencies"

    job_id: Mapped[int] = mapped_column(ForeignKey(Job.id), primary_key=True)
    depends_on: Mapped[int] = mapped_column(ForeignKey(Job.id), primary_key=True)
    needs: Mapped[str] = mapped_column(Text, server_default=FetchedValue())

    job: Mapped[Job] = relationship(back_populates="dependencies", foreign_keys=job_id)
    upstream: Mapped[Job] = relationship(foreign_keys=depends_on)
