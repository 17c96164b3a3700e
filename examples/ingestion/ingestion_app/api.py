"""The endpoints: those that submit jobs, and those that show their results."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, UploadFile
from sqlalchemy.ext.asyncio import AsyncSession

from ingestion_app import results
from ingestion_app.access import allowed
from ingestion_app.combination import Combination
from ingestion_app.runs import ModuleRun, TypeRun, Year
from ingestion_app.submission import Accepted, Submission

router = APIRouter()


async def open_session(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions() as session:
        yield session


AnyModule = Annotated[ModuleRun, Query()]
AnyType = Annotated[TypeRun, Query()]
Submit = Annotated[Submission, Depends()]
Session = Annotated[AsyncSession, Depends(open_session)]
viewers = APIRouter(dependencies=[Depends(allowed("view"))])


@router.post("/entries", status_code=202)
async def upload_entries(submission: Submit, run: AnyType, file: UploadFile) -> Accepted:
    """Replaces the entries of a type by those of a CSV file: unit, activity, quantity."""
    combination = Combination("entries", run.module, run.data_entry_type, "csv", run.year)
    return await submission.submit_file("csv_ingest", run, combination, file)


@router.post("/imports", status_code=202)
async def import_entries(submission: Submit, run: AnyType) -> Accepted:
    """Replaces the entries of a type by those of the upstream system."""
    combination = Combination("entries", run.module, run.data_entry_type, "api", run.year)
    return await submission.submit("api_ingest", run, combination)


@router.post("/factors", status_code=202)
async def upload_factors(submission: Submit, run: AnyModule, file: UploadFile) -> Accepted:
    """Adds and changes factors of a module, from a CSV file: data_entry_type, activity, kg_per_unit."""
    combination = Combination("factors", run.module, method="csv", year=run.year)
    return await submission.submit_file("factor_ingest", run, combination, file)


@router.post("/recalculations", status_code=202)
async def recalculate(submission: Submit, run: AnyModule) -> Accepted:
    """Calculates all emissions of a module again."""
    combination = Combination("module", run.module, year=run.year)
    return await submission.submit("module_emission_recalc", run, combination)


@router.post("/units/sync", status_code=202)
async def sync_units(submission: Submit) -> Accepted:
    """Takes over the units of the upstream system."""
    return await submission.submit("unit_sync", None, Combination("units"))


@viewers.get("/reports")
async def show_reports(session: Session, year: Year) -> list[results.ReportShown]:
    return await results.find_reports(session, year)


@viewers.get("/factors/stale")
async def show_stale_factors(session: Session, year: Year) -> list[results.StaleFactor]:
    """Factors that have changed since the emissions were calculated, by data entry type and id."""
    return await results.find_stale_factors(session, year)


@viewers.get("/runs/current")
async def show_current_runs(session: Session, year: Year) -> list[results.CurrentRun]:
    """The newest run of each combination."""
    return await results.find_current_runs(session, year)


@viewers.get("/runs/{job_id}/rejected")
async def show_rejected_rows(session: Session, job_id: int) -> list[results.Rejected]:
    return await results.find_rejected(session, job_id)


router.include_router(viewers)
