"""The endpoints: a trigger, the status of simulations, their results and logs, and health."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal
from uuid import UUID

import httpx
from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from simulation_app.access import allowed
from simulation_app.reactor_api import ReactorApi, passed_on
from simulation_app.results import ResultShown, find_results
from simulation_app.simulation import MODELS, Day, Model, ModelDay, Simulation
from simulation_app.status import Page, SimulationShown, Status

State = Literal["waiting", "pending", "running", "completed", "partial", "failed", "cancelled"]
Id = Annotated[int, Path(ge=1, lt=2**63)]
AnyId = Annotated[int | None, Query(ge=1, lt=2**63)]
router = APIRouter()
viewers = APIRouter(prefix="/api", dependencies=[Depends(allowed("view"))])


class Accepted(BaseModel):
    job_id: int
    pipeline_id: UUID
    outcome: str
    """created, or existing: the same range and models were requested in the last 24 hours."""


def reactor_api(request: Request) -> ReactorApi:
    found: ReactorApi = request.app.state.reactor_api
    return found


async def open_session(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions() as session:
        yield session


Reactor = Annotated[ReactorApi, Depends(reactor_api)]
Session = Annotated[AsyncSession, Depends(open_session)]


@router.post("/api/simulations", status_code=202, dependencies=[Depends(allowed("submit"))])
async def trigger(request: Request, response: Response, reactor: Reactor, plan: Simulation) -> Accepted:
    """J1, J6, J7: 202; 200 for a repeated request; 409 while another simulation runs, with its details."""
    submitted = await reactor.post(request, "/v1/jobs", {**plan.job, "idempotency_key": plan.key})
    response.status_code = submitted.status_code
    job = submitted.json()
    response.headers["Location"] = f"/api/simulations/{job['id']}"
    return Accepted(job_id=job["id"], pipeline_id=job["pipeline_id"], outcome=job["outcome"])


@viewers.get("/simulations")
async def list_simulations(
    request: Request, reactor: Reactor, state: State | None = None, before: AnyId = None, limit: int = 20
) -> Page:
    """J10, J14: the most recent first, or those in a state; one query."""
    page = await reactor.get(request, "/v1/jobs", job_type="simulation", state=state, before=before, limit=limit)
    following = int(httpx.URL(page["next"]).params["before"]) if page["next"] else None
    return Page(simulations=[SimulationShown.of(job) for job in page["jobs"]], before=following)


@viewers.get("/simulations/{job_id}")
async def show_simulation(request: Request, reactor: Reactor, job_id: Id) -> Status:
    """J1, J4: progress, counts, and every model-day with its duration and its error."""
    job = await reactor.get(request, f"/v1/jobs/{job_id}")
    if job["job_type"] != "simulation":
        raise HTTPException(404, f"Job {job_id} is not a simulation.")
    return Status.of(job)


@viewers.get("/simulations/{job_id}/logs/{day}/{model}")
async def show_logs(request: Request, reactor: Reactor, job_id: Id, day: Day, model: Model) -> list[dict[str, Any]]:
    """J17: what the trading model printed on this model-day."""
    step = ModelDay(day, model).step
    logs = await reactor.get(request, f"/v1/jobs/{job_id}/logs", step=step)
    lines: list[dict[str, Any]] = logs["lines"]
    return lines


@viewers.get("/results")
async def show_results(
    session: Session,
    job_id: AnyId = None,
    day: Annotated[Day | None, Query(alias="date")] = None,
    model: Model | None = None,
    limit: Annotated[int, Query(ge=1, le=2_000)] = 200,
    offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
) -> list[ResultShown]:
    """J1: returns, positions and trades, by job, date and model, across jobs."""
    return await find_results(session, job_id, day, model, limit, offset)


@viewers.get("/models")
async def show_models() -> list[str]:
    return list(MODELS)


@router.get("/health")
async def show_health(reactor: Reactor) -> Response:
    """J1, J13: 200, or 503 while the database can't be reached."""
    return passed_on(await reactor.health())


router.include_router(viewers)
