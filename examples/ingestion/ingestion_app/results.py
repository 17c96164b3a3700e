"""What the page and the API show: reports, factors, current runs, rejected rows."""

from decimal import Decimal

from pydantic import BaseModel, ConfigDict
from sqlalchemy import BigInteger, Boolean, Text, column, func, select, table
from sqlalchemy.ext.asyncio import AsyncSession

from ingestion_app.combination import Combination
from ingestion_app.emissions import FACTOR_OF_ENTRY, stale_factors
from ingestion_app.models import DataEntry, DataEntryType, Factor, RejectedRow, Report

# Not in the metadata of the models: reactor's tables are migrated by reactor.
JOBS = table(
    "jobs",
    column("id", BigInteger),
    column("job_type", Text),
    column("scope", Text),
    column("state", Text),
    column("status_message", Text),
    column("is_current", Boolean),
    schema="reactor",
)
JOB_TYPES = (
    "csv_ingest",
    "api_ingest",
    "factor_ingest",
    "emission_recalc",
    "module_emission_recalc",
    "aggregation",
    "unit_sync",
)


class Shown(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class ReportShown(Shown):
    module: str
    year: int
    total_kg: Decimal | None
    """null: being calculated."""
    recomputed_kg: Decimal
    """From the entries and the factors, by the same query. Equal to the total, unless that is null."""
    without_factor: int
    """The number of entries that have no factor."""


class StaleFactor(Shown):
    id: int
    data_entry_type: str
    activity: str
    kg_per_unit: Decimal


class CurrentRun(Shown):
    """The newest run of a combination."""

    combination: dict[str, str | int | None]
    job_id: int
    job_type: str
    state: str
    status_message: str | None
    entries: int
    """The number of data entries that it has written and that are still there."""


class Rejected(Shown):
    line: int
    reason: str


async def find_reports(session: AsyncSession, year: int) -> list[ReportShown]:
    entries = (
        select(func.coalesce(func.sum(DataEntry.quantity * Factor.kg_per_unit), 0))
        .select_from(DataEntry)
        .join(DataEntryType)
        .outerjoin(Factor, FACTOR_OF_ENTRY)
        .where(DataEntryType.module == Report.module, DataEntry.year == Report.year)
    )
    without = entries.with_only_columns(func.count()).where(Factor.id.is_(None))
    statement = select(
        Report.module,
        Report.year,
        Report.total_kg,
        entries.scalar_subquery().label("recomputed_kg"),
        without.scalar_subquery().label("without_factor"),
    )
    rows = await session.execute(statement.where(Report.year == year).order_by(Report.module))
    return [ReportShown.model_validate(row) for row in rows]


async def find_stale_factors(session: AsyncSession, year: int) -> list[StaleFactor]:
    """D16"""
    return [StaleFactor.model_validate(factor) for factor in await session.scalars(stale_factors(year))]


async def find_current_runs(session: AsyncSession, year: int) -> list[CurrentRun]:
    written = select(func.count()).where(DataEntry.job_id == JOBS.c.id).scalar_subquery()
    statement = (
        select(JOBS, written.label("entries"))
        .where(JOBS.c.is_current, JOBS.c.job_type.in_(JOB_TYPES), JOBS.c.scope.endswith(f"/year={year}"))
        .order_by(JOBS.c.scope)
    )
    return [
        CurrentRun(
            combination=Combination.of(row.scope)._asdict(),
            job_id=row.id,
            job_type=row.job_type,
            state=row.state,
            status_message=row.status_message,
            entries=row.entries,
        )
        for row in await session.execute(statement)
    ]


async def find_rejected(session: AsyncSession, job_id: int) -> list[Rejected]:
    rows = await session.scalars(select(RejectedRow).filter_by(job_id=job_id).order_by(RejectedRow.line).limit(1000))
    return [Rejected.model_validate(row) for row in rows]
