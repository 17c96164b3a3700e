"""Reads prices from the market."""

import os
from typing import Any

import httpx

from simulation_app.simulation import ModelDay


def url() -> str:
    return os.environ["MARKET_URL"]


async def fetch_prices(client: httpx.AsyncClient, day: ModelDay) -> dict[str, Any]:
    """The last closing prices of each symbol, up to this date."""
    response = await client.get("prices", params={"date": str(day.date), "model": day.model})
    prices: dict[str, Any] = response.raise_for_status().json()
    return prices
