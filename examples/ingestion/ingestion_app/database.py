"""The database of the application, which is reactor's too."""

import os
from functools import partial

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine


def database_url() -> str:
    return os.environ["REACTOR_DATABASE_URL"]


def open_engine() -> AsyncEngine:
    # asyncpg reads the URL, because it knows libpq's parameters (sslmode, …), and SQLAlchemy does not.
    return create_async_engine("postgresql+asyncpg://", async_creator=partial(asyncpg.connect, database_url()))
