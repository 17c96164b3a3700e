"""The front end: the endpoints and the page, with reactor's API, streams and page mounted beside them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from reactor.settings import read_settings
from reactor_http.app import create_app
from sqlalchemy.ext.asyncio import async_sessionmaker

from ingestion_app import api, fake_upstream
from ingestion_app.database import database_url, open_engine

PAGE = Path(__file__).parent / "page"


def create() -> FastAPI:
    """`uvicorn --factory ingestion_app.app:create`"""
    engine = open_engine()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await engine.dispose()

    app = FastAPI(title="Carbon reports", lifespan=lifespan)
    app.state.sessions = async_sessionmaker(engine, expire_on_commit=False)
    app.state.reactor = create_app(database_url(), read_settings())
    app.include_router(api.router, prefix="/api")
    app.include_router(fake_upstream.router, prefix="/upstream")
    app.mount("/reactor", app.state.reactor)
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app
