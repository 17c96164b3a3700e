"""D10: the jobs. Ingests, and the calculations that follow from them.

    csv_ingest, api_ingest, factor_ingest ──▶ emission_recalc, one per stale type ──▶ aggregation

The handlers work in `ctx.session()`: their rows, their result and the jobs that follow are one commit. So a pod that
dies leaves nothing behind, and another one starts over.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx
from reactor import Completed, Context, Fail, Job, Partial, lifespan, register
from sqlalchemy.ext.asyncio import AsyncSession

from ingestion_app import emissions, entries, upstream
from ingestion_app.combination import Combination
from ingestion_app.models import Upload
from ingestion_app.rows import EntryRow, FactorRow, FileInvalid, Row, Rows, check, read_csv
from ingestion_app.runs import EntriesUpload, FactorsUpload, ModuleRun, TypeRun


@lifespan
async def open_clients() -> AsyncIterator[dict[str, Any]]:
    async with httpx.AsyncClient(base_url=upstream.url(), timeout=20) as client:
        yield {"upstream": client}


@register("csv_ingest", max_attempts=5, timeout_seconds=600)
async def csv_ingest(run: EntriesUpload, job: Job, ctx: Context) -> Completed | Partial:
    """Replaces the entries of a type by those of an uploaded file."""
    async with ctx.session() as session:
        rows = await read_upload(session, run.upload_id, EntryRow, await entries.unit_codes(session))
        return await ingest(run, job, ctx, session, rows, "csv")


@register("api_ingest", max_attempts=5, timeout_seconds=600)
async def api_ingest(run: TypeRun, job: Job, ctx: Context) -> Completed | Partial:
    """Replaces the entries of a type by those of the upstream system."""
    records: list[dict[str, Any]] = []
    number, pages = 0, 1
    while number < pages:
        number += 1
        # A step that has completed is not called again: another attempt continues with the next page.
        page = await ctx.step(f"page {number}", upstream.fetch_page, ctx.resources["upstream"], run, number)
        records += page["entries"]
        pages = page["pages"]
        await ctx.progress(0.9 * number / pages, f"page {number} of {pages} read")
    async with ctx.session() as session:
        rows = check(EntryRow, enumerate(records, 1), await entries.unit_codes(session))
        return await ingest(run, job, ctx, session, rows, "api")


@register("factor_ingest", max_attempts=5, timeout_seconds=600)
async def factor_ingest(run: FactorsUpload, job: Job, ctx: Context) -> Completed | Partial:
    """D17: stores new and changed factors, and recalculates the types that they make stale."""
    async with ctx.session() as session:
        types = await emissions.types_of(session, run.module)
        rows = await read_upload(session, run.upload_id, FactorRow, types)
        await keep_rejected(session, job, rows)
        if await emissions.store_factors(session, run, rows.valid):
            await emissions.withdraw_report(session, run)
            types = await emissions.stale_types(session, run)
            await recalculate(run, ctx, types)
            await ctx.meta(stale_types=types)
        return ended(rows)


@register("emission_recalc", max_attempts=5, timeout_seconds=600)
async def emission_recalc(run: TypeRun, ctx: Context) -> Completed | Partial:
    """Calculates the emissions of one type."""
    async with ctx.session() as session:
        counts = await emissions.calculate(session, run)
    if counts["without_factor"]:
        return Partial(counts, f"{counts['without_factor']} entries have no factor")
    return Completed(counts, f"{counts['entries']} entries calculated")


@register("module_emission_recalc", max_attempts=5)
async def module_emission_recalc(run: ModuleRun, ctx: Context) -> dict[str, Any]:
    """Recalculates all types of a module."""
    async with ctx.session() as session:
        types = await emissions.types_of(session, run.module)
        await recalculate(run, ctx, types)
    return {"types": types}


@register("aggregation", max_attempts=5)
async def aggregation(run: ModuleRun, ctx: Context) -> Completed:
    """Writes the report of a module, when the jobs that it waited for have ended."""
    calculated = {str(job.result["type"]): job.state for job in await ctx.upstream() if job.result}
    async with ctx.session() as session:
        total = await emissions.aggregate(session, run)
    if total is None:
        return Completed({"calculated": calculated}, "not written: a type is stale, and its own run is not done")
    return Completed({"calculated": calculated, "total_kg": str(total)}, f"{total:.3f} kg")


@register("unit_sync", max_attempts=5, timeout_seconds=60)
async def unit_sync(ctx: Context) -> dict[str, int]:
    """Takes over the units of the upstream system."""
    units = await upstream.fetch_units(ctx.resources["upstream"])
    async with ctx.session() as session:
        await entries.store_units(session, units)
    return {"units": len(units)}


async def ingest(
    run: TypeRun, job: Job, ctx: Context, session: AsyncSession, rows: Rows[EntryRow], method: str
) -> Completed | Partial:
    await keep_rejected(session, job, rows)
    await entries.replace(session, run, method, job.id, rows.valid)
    await emissions.withdraw_report(session, run)
    await recalculate(run, ctx, await emissions.stale_types(session, run))
    return ended(rows)


async def recalculate(run: ModuleRun, ctx: Context, types: Iterable[str]) -> None:
    """D8, D9: one job per type, and one that waits for all of them. The module and the year go along, the type does
    not."""
    about: dict[str, Any] = {"module": run.module, "year": run.year}
    calculations = [
        await ctx.chain(
            "emission_recalc",
            about | {"data_entry_type": name},
            scope=Combination("emissions", data_entry_type=name, **about).scope,
            queue="recalc",
            inherit=["tags"],
        )
        for name in types
    ]
    report = Combination("report", **about)
    await ctx.chain("aggregation", about, scope=report.scope, after_end_of=calculations, inherit=["tags"])


async def read_upload(session: AsyncSession, upload_id: int, model: type[Row], known: list[str]) -> Rows[Row]:
    upload = await session.get_one(Upload, upload_id)
    try:
        return check(model, read_csv(upload.content), known)
    except FileInvalid as error:
        raise Fail(str(error)) from error


async def keep_rejected(session: AsyncSession, job: Job, rows: Rows[Row]) -> None:
    """D6: the rejected rows are kept for the person who corrects the file, also if none was valid and the job fails."""
    await entries.store_rejected(session, job.id, rows.rejected)
    if not rows.valid:
        message = f"none of the {len(rows.rejected)} rows is valid"
        raise Fail(message, result=rows.counts, message=message, keep_data=True)


def ended(rows: Rows[Row]) -> Completed | Partial:
    if rows.rejected:
        return Partial(rows.counts, f"{len(rows.rejected)} rows were rejected, {len(rows.valid)} ingested")
    return Completed(rows.counts, f"{len(rows.valid)} rows ingested")
