"""Factors, the emissions that follow from them, and the totals of reports."""

from collections.abc import Iterable
from decimal import Decimal

from sqlalchemy import Select, and_, exists, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from ingestion_app.models import DataEntry, DataEntryType, Emission, Factor, Report
from ingestion_app.rows import FactorRow
from ingestion_app.runs import ModuleRun, TypeRun

FACTOR_OF_ENTRY = and_(
    Factor.data_entry_type == DataEntry.data_entry_type,
    Factor.year == DataEntry.year,
    Factor.activity == DataEntry.activity,
)


async def types_of(session: AsyncSession, module: str) -> list[str]:
    statement = select(DataEntryType.name).where(DataEntryType.module == module).order_by(DataEntryType.name)
    return list(await session.scalars(statement))


async def store_factors(session: AsyncSession, run: ModuleRun, rows: Iterable[FactorRow]) -> int:
    """New and changed factors are stale. Returns how many there are. Of two rows about one factor, the last counts."""
    insert = upsert(Factor)
    statement = insert.on_conflict_do_update(
        index_elements=[Factor.data_entry_type, Factor.year, Factor.activity],
        set_={"kg_per_unit": insert.excluded.kg_per_unit, "is_stale": True},
        where=Factor.kg_per_unit != insert.excluded.kg_per_unit,
    )
    last = {(row.data_entry_type, row.activity): row for row in rows}
    # Sorted as `calculate` locks them, so that the two don't deadlock.
    values = [row.model_dump() | {"year": run.year, "is_stale": True} for _, row in sorted(last.items())]
    return len((await session.scalars(statement.returning(Factor.id), values)).all())


def stale_factors(year: int) -> Select[Factor]:
    return select(Factor).where(Factor.year == year, Factor.is_stale).order_by(Factor.data_entry_type, Factor.id)


async def stale_types(session: AsyncSession, run: ModuleRun) -> list[str]:
    """Types of the module with a stale factor, or with an entry whose emission is not calculated yet."""
    of_type = and_(Factor.data_entry_type == DataEntryType.name, Factor.year == run.year)
    calculated = exists().where(Emission.data_entry_id == DataEntry.id)
    uncalculated = exists().where(of_type, FACTOR_OF_ENTRY, ~calculated)
    statement = (
        select(DataEntryType.name)
        .where(DataEntryType.module == run.module, or_(exists().where(of_type, Factor.is_stale), uncalculated))
        .order_by(DataEntryType.name)
    )
    return list(await session.scalars(statement))


async def calculate(session: AsyncSession, run: TypeRun) -> dict[str, int | str]:
    """All emissions of a type. Its factors are not stale any more."""
    of_type = and_(Factor.data_entry_type == run.data_entry_type, Factor.year == run.year)
    # Until the commit, these factors stay as they are, and the entries are not deleted.
    locked = select(Factor.id).where(of_type).order_by(Factor.activity.collate("C")).with_for_update()
    factors = (await session.scalars(locked)).all()
    products = (
        select(DataEntry.id, Factor.id, DataEntry.quantity * Factor.kg_per_unit)
        .join(Factor, FACTOR_OF_ENTRY)
        .where(Factor.id.in_(factors))
        .order_by(DataEntry.id)
        .with_for_update(read=True, key_share=True, of=DataEntry)
    )
    statement = upsert(Emission).from_select(["data_entry_id", "factor_id", "kg"], products)
    statement = statement.on_conflict_do_update(
        index_elements=[Emission.data_entry_id],
        set_={"factor_id": statement.excluded.factor_id, "kg": statement.excluded.kg},
    )
    calculated = (await session.scalars(statement.returning(Emission.data_entry_id))).all()
    await session.execute(update(Factor).where(Factor.id.in_(factors)).values(is_stale=False))
    without_factor = (
        select(func.count())
        .select_from(DataEntry)
        .outerjoin(Factor, FACTOR_OF_ENTRY)
        .where(DataEntry.data_entry_type == run.data_entry_type, DataEntry.year == run.year, Factor.id.is_(None))
    )
    return {
        "type": run.data_entry_type,
        "entries": len(calculated),
        "without_factor": await session.scalar(without_factor) or 0,
    }


async def withdraw_report(session: AsyncSession, run: ModuleRun) -> None:
    """The last write of what changes entries or factors: `aggregate` waits for its commit."""
    statement = upsert(Report).values(module=run.module, year=run.year)
    conflict = [Report.module, Report.year]
    await session.execute(statement.on_conflict_do_update(index_elements=conflict, set_={"total_kg": None}))


async def aggregate(session: AsyncSession, run: ModuleRun) -> Decimal | None:
    """The total, unless a type is stale: another run has changed it, and that run's own aggregation follows."""
    await session.execute(upsert(Report).values(module=run.module, year=run.year).on_conflict_do_nothing())
    report = await session.get_one(Report, (run.module, run.year), with_for_update=True)
    report.total_kg = None if await stale_types(session, run) else await session.scalar(sum_of_emissions(run))
    return report.total_kg


def sum_of_emissions(run: ModuleRun) -> Select[Decimal]:
    return (
        select(func.coalesce(func.sum(Emission.kg), Decimal(0)))
        .join(DataEntry)
        .join(DataEntryType)
        .where(DataEntryType.module == run.module, DataEntry.year == run.year)
    )
