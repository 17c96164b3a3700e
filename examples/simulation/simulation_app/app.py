"""The front end: the endpoints and the page, with reactor's API, streams and page mounted beside them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from reactor.settings import read_settings
from reactor_http.app import create_app
from sqlalchemy.ext.asyncio import async_sessionmaker

from simulation_app import api, fake_market, unavailable
from simulation_app.database import database_url, open_engine
from simulation_app.reactor_api import ReactorApi, Refused, pass_on

PAGE = Path(__file__).parent / "page"


def create() -> FastAPI:
    """`uvicorn --factory simulation_app.app:create`"""
    # A request waits for a lock for three seconds at most.
    engine = open_engine(statement_timeout="3s")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await engine.dispose()

    app = FastAPI(title="Trading simulations", lifespan=lifespan)
    app.state.sessions = async_sessionmaker(engine, expire_on_commit=False)
    app.state.reactor = create_app(database_url(), read_settings())
    app.state.reactor_api = ReactorApi(app.state.reactor)
    app.add_exception_handler(Refused, pass_on)
    for kind in unavailable.KINDS:
        app.add_exception_handler(kind, unavailable.respond)
    app.include_router(api.router)
    app.include_router(fake_market.router, prefix="/market")
    app.mount("/reactor", app.state.reactor)
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app
