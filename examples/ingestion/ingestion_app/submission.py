"""Submits the job that a request asks for, in one transaction with the file that it uploads."""

from typing import Annotated, Any
from uuid import UUID

import reactor
from fastapi import Depends, Header, HTTPException, Request, Response, UploadFile
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from ingestion_app.access import allowed
from ingestion_app.combination import Combination
from ingestion_app.models import DataEntryType, Module, Upload
from ingestion_app.runs import ModuleRun, TypeRun

MAX_BYTES = 10_000_000


class Accepted(BaseModel):
    job_id: int
    pipeline_id: UUID
    outcome: str
    """created, or existing: a request with the same key created this job before."""


class Submission:
    def __init__(
        self,
        request: Request,
        response: Response,
        caller: Annotated[str, Depends(allowed("submit"))],
        idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
    ) -> None:
        self._sessions = request.app.state.sessions
        self._response = response
        self._options: dict[str, Any] = {"submitted_by": caller, "idempotency_key": idempotency_key}

    async def submit(self, job_type: str, run: ModuleRun | None, combination: Combination) -> Accepted:
        # Not a dependency with `yield`: FastAPI would respond before it commits.
        async with self._sessions.begin() as session:
            return await self._submit(session, job_type, run, combination)

    async def submit_file(self, job_type: str, run: ModuleRun, combination: Combination, file: UploadFile) -> Accepted:
        upload = await read(file)
        async with self._sessions.begin() as session:
            session.add(upload)
            await session.flush()
            done = await self._submit(session, job_type, run, combination, upload)
            if done.outcome == "existing":
                await session.delete(upload)
            return done

    async def _submit(
        self,
        session: AsyncSession,
        job_type: str,
        run: ModuleRun | None,
        combination: Combination,
        upload: Upload | None = None,
    ) -> Accepted:
        payload: dict[str, Any] = {}
        options = self._options | {"scope": combination.scope}
        if run is not None:
            await require_known(session, run)
            payload |= run.model_dump()
            options["tags"] = run.tags
        if upload is not None:
            payload["upload_id"] = upload.id
            options["meta"] = {"file": upload.file_name}
        job = await reactor.submit(session, job_type, payload, **options)
        self._response.status_code = 202 if job.outcome == "created" else 200
        return Accepted(job_id=job.id, pipeline_id=job.pipeline_id, outcome=job.outcome)


async def read(file: UploadFile) -> Upload:
    content = await file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise HTTPException(413, f"The file has more than {MAX_BYTES} bytes. Split it.")
    # As a browser names it; it is shown to people only.
    name = "".join(character for character in file.filename or "" if character.isprintable())
    return Upload(file_name=name[:200] or "unnamed", content=content)


async def require_known(session: AsyncSession, run: ModuleRun) -> None:
    if await session.get(Module, run.module) is None:
        raise HTTPException(422, f"There is no module {run.module!r}.")
    if isinstance(run, TypeRun):
        found = await session.get(DataEntryType, run.data_entry_type)
        if found is None or found.module != run.module:
            raise HTTPException(422, f"The module {run.module!r} has no data entry type {run.data_entry_type!r}.")
