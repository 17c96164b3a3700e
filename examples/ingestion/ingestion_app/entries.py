"""Writes data entries, units and rejected rows."""

from collections.abc import Iterable, Mapping

from sqlalchemy import delete, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from ingestion_app.models import DataEntry, RejectedRow, Unit
from ingestion_app.rows import EntryRow
from ingestion_app.runs import TypeRun


async def unit_codes(session: AsyncSession) -> list[str]:
    return list(await session.scalars(select(Unit.code)))


async def replace(session: AsyncSession, run: TypeRun, method: str, job_id: int, rows: Iterable[EntryRow]) -> None:
    """The rows take the place of all that earlier runs of the same combination have written."""
    combination = {"data_entry_type": run.data_entry_type, "year": run.year, "method": method}
    await session.execute(delete(DataEntry).filter_by(**combination))
    await session.execute(insert(DataEntry), [row.model_dump() | combination | {"job_id": job_id} for row in rows])


async def store_rejected(session: AsyncSession, job_id: int, reasons: Mapping[int, str]) -> None:
    """Those of the job's latest run."""
    await session.execute(delete(RejectedRow).filter_by(job_id=job_id))
    if reasons:
        rows = [{"job_id": job_id, "line": line, "reason": reason} for line, reason in reasons.items()]
        await session.execute(insert(RejectedRow), rows)


async def store_units(session: AsyncSession, units: list[dict[str, str]]) -> None:
    statement = upsert(Unit)
    statement = statement.on_conflict_do_update(index_elements=[Unit.code], set_={"name": statement.excluded.name})
    await session.execute(statement, units)
