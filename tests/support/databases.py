"""Databases without reactor's schema."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from reactor.database.connection import connect
from reactor.database.url import with_database


@asynccontextmanager
async def empty_database(server: str, options: str = "") -> AsyncIterator[str]:
    """`options`: of CREATE DATABASE."""
    name = f"reactor_test_{uuid4().hex[:12]}"
    async with connect(server, name="test") as admin:
        await admin.execute(f"create database {name} {options}")
        try:
            yield with_database(server, name)
        finally:
            await admin.execute(f"drop database {name} with (force)")
