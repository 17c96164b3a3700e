"""The system that api_ingest and unit_sync read from, over HTTP."""

import os
from typing import Any
from urllib.parse import quote

import httpx

from ingestion_app.runs import TypeRun


def url() -> str:
    return os.environ["UPSTREAM_URL"]


async def fetch_page(client: httpx.AsyncClient, run: TypeRun, number: int) -> dict[str, Any]:
    """One page of the entries of a type, and the number of pages."""
    path = f"/entries/{quote(run.data_entry_type, safe='')}"
    return await _get(client, path, year=run.year, page=number)


async def fetch_units(client: httpx.AsyncClient) -> list[dict[str, str]]:
    units: list[dict[str, str]] = (await _get(client, "/units"))["units"]
    return units


async def _get(client: httpx.AsyncClient, path: str, **query: int) -> dict[str, Any]:
    response = await client.get(path, params=query)
    # reactor retries the job after an error.
    response.raise_for_status()
    content: dict[str, Any] = response.json()
    return content
