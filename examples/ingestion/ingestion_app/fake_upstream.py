"""Stands for the upstream system: serves the files in data/upstream, in pages, and not quickly."""

import asyncio
import json
from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException

FOLDER = Path(__file__).parent.parent / "data" / "upstream"
PAGE_SIZE = 20
PAUSE_SECONDS = 0.25

router = APIRouter()


@router.get("/units")
async def list_units() -> dict[str, Any]:
    return {"units": json.loads((FOLDER / "units.json").read_text())}


@router.get("/entries/{data_entry_type}")
async def list_entries(data_entry_type: str, year: int, page: int = 1) -> dict[str, Any]:
    if data_entry_type not in {path.stem for path in FOLDER.glob("*.json")}:
        raise HTTPException(404, f"There are no entries of the type {data_entry_type}.")
    await asyncio.sleep(PAUSE_SECONDS)
    entries = json.loads((FOLDER / f"{data_entry_type}.json").read_text())
    pages = -(-len(entries) // PAGE_SIZE)
    return {"pages": pages, "entries": entries[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]}
