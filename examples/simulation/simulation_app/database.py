"""The database of the application, which is reactor's too."""

import os
from functools import partial

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine


def database_url() -> str:
    return os.environ["REACTOR_DATABASE_URL"]


def open_engine(**settings: str) -> AsyncEngine:
    """`settings`: of its sessions."""
    # asyncpg reads the URL, because it knows libpq's parameters (sslmode, …), and SQLAlchemy does not.
    connect = partial(asyncpg.connect, database_url(), timeout=5, server_settings=settings)
    return create_async_engine("postgresql+asyncpg://", async_creator=connect)
