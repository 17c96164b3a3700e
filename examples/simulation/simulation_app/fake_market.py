"""The prices of a market that does not exist, and its outages.

They are generated from a seed: the same date always has the same prices.
"""

import json
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from random import Random
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query

from simulation_app.access import allowed
from simulation_app.simulation import DATA, Day, Model, ModelDay

MARKET = json.loads((DATA / "market.json").read_text())
WINDOW = 20

router = APIRouter()
outages: dict[ModelDay, int] = {}
"""How many further requests fail."""


@cache
def closes(symbol: str) -> dict[date, Decimal]:
    """The closing price of each trading day: a random walk in cents."""
    random = Random(f"{MARKET['seed']}/{symbol}")
    cents = MARKET["prices"][symbol] * 100
    day, last = date.fromisoformat(MARKET["first"]), date.fromisoformat(MARKET["last"])
    found = {}
    while day <= last:
        if day.weekday() < 5:
            cents = max(100, cents + cents * random.randint(-290, 300) // 10_000)
            found[day] = Decimal(cents) / 100
        day += timedelta(1)
    return found


@router.get("/prices")
async def show_prices(day: Annotated[Day, Query(alias="date")], model: Model) -> dict[str, list[Decimal]]:
    """The closing prices of a date and of the days before it, for the simulation of a model."""
    asked = ModelDay(day, model)
    if outages.get(asked, 0) > 0:
        outages[asked] -= 1
        raise HTTPException(503, "The market is out of order.")
    days = [day - timedelta(n) for n in range(2 * WINDOW)]
    return {
        symbol: [closes(symbol)[day] for day in reversed(days) if day in closes(symbol)][-WINDOW:]
        for symbol in MARKET["prices"]
    }


@router.put("/outages/{day}/{model}", status_code=204, dependencies=[Depends(allowed("operate"))])
async def set_outage(day: Day, model: Model, requests: int) -> None:
    """The next requests for this model-day fail; 0 ends the outage."""
    outages[ModelDay(day, model)] = requests
