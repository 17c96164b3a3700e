"""Stores the results of model-days, and finds them again."""

from datetime import date
from decimal import Decimal

from pydantic import BaseModel, ConfigDict
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from simulation_app.runtime import Outcome
from simulation_app.simulation import ModelDay
from simulation_app.tables import Position, Result, Trade

START = Decimal(100_000)
NESTED = (selectinload(Result.positions), selectinload(Result.trades))


class Portfolio(BaseModel):
    """What a model starts a date with."""

    cash: Decimal = START
    value: Decimal = START
    positions: dict[str, int] = {}


class Shown(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class PositionShown(Shown):
    symbol: str
    quantity: int
    price: Decimal


class TradeShown(PositionShown):
    number: int


class ResultShown(Shown):
    job_id: int
    date: date
    model: str
    cash: Decimal
    value: Decimal
    day_return: Decimal
    turnover: Decimal
    positions: list[PositionShown]
    trades: list[TradeShown]


async def find_portfolio(session: AsyncSession, job_id: int, day: ModelDay) -> Portfolio | None:
    """At the end of a model-day; None: it has no result."""
    result = await session.get(Result, (job_id, day.date, day.model), options=NESTED)
    if result is None:
        return None
    positions = {position.symbol: position.quantity for position in result.positions}
    return Portfolio(cash=result.cash, value=result.value, positions=positions)


async def store(session: AsyncSession, job_id: int, day: ModelDay, before: Portfolio, outcome: Outcome) -> Decimal:
    """Once: a process may die when this is committed, and before its step is. Then the model-day runs again, and
    another attempt would write the same."""
    of = {"job_id": job_id, "date": day.date, "model": day.model}
    day_return = (outcome.value / before.value - 1).quantize(Decimal("1e-8"))
    turnover = sum(abs(trade.quantity) * trade.price for trade in outcome.trades)
    values = {"cash": outcome.cash, "value": outcome.value, "day_return": day_return, "turnover": turnover}
    statement = insert(Result).values(**of, **values)
    if await session.scalar(statement.on_conflict_do_nothing().returning(Result.job_id)):
        session.add_all(Position(**of, **position.model_dump()) for position in outcome.positions)
        session.add_all(Trade(**of, number=n, **trade.model_dump()) for n, trade in enumerate(outcome.trades, 1))
    return day_return


async def find_results(
    session: AsyncSession, job_id: int | None, day: date | None, model: str | None, limit: int, offset: int
) -> list[ResultShown]:
    """J1: of one job, or across jobs. J10: three queries, however many results there are."""
    filters = {"job_id": job_id, "date": day, "model": model}
    statement = (
        select(Result)
        .filter_by(**{name: value for name, value in filters.items() if value is not None})
        .order_by(Result.job_id, Result.date, Result.model)
        .limit(limit)
        .offset(offset)
        .options(*NESTED)
    )
    return [ResultShown.model_validate(result) for result in await session.scalars(statement)]
