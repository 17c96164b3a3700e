"""Stands for the upstream system: serves the files in data/upstream, in pages, and as slowly as it is asked to."""

import asyncio
import json
from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException

FOLDER = Path(__file__).parent.parent / "data" / "upstream"
PAGE_SIZE = 20
PAUSE_SECONDS = 0.1

router = APIRouter()


class Hold:
    """Holds back pages, so that a pod can be killed while it waits for one."""

    def __init__(self) -> None:
        self.page: int | None = None
        """This one and later ones."""
        self.released = asyncio.Event()


hold = Hold()


@router.post("/hold")
async def hold_back(page: int | None = None) -> None:
    """Pages from this one on are held back until this is called without a page."""
    hold.page = page
    if page is None:
        hold.released.set()
    else:
        hold.released.clear()


@router.get("/units")
async def list_units() -> dict[str, Any]:
    return {"units": json.loads((FOLDER / "units.json").read_text())}


@router.get("/entries/{data_entry_type}")
async def list_entries(data_entry_type: str, year: int, page: int = 1) -> dict[str, Any]:
    if data_entry_type not in {path.stem for path in FOLDER.glob("*.json")}:
        raise HTTPException(404, f"There are no entries of the type {data_entry_type}.")
    await asyncio.sleep(PAUSE_SECONDS)
    if hold.page is not None and page >= hold.page:
        await hold.released.wait()
    entries = json.loads((FOLDER / f"{data_entry_type}.json").read_text())
    pages = -(-len(entries) // PAGE_SIZE)
    return {"pages": pages, "entries": entries[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]}
