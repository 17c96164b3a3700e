"""Runs the program of a client once, and keeps what it printed and what the database then contained."""

import asyncio
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from reactor.database.connection import connect
from reactor.testing import Databases, fast_temporary_folder
from tests.clients.registry import SCENARIOS, Client
from tests.clients.routes import direct, pgbouncer

PASSWORD = "p@ss word/1"  # noqa: S105 (has to be quoted in an address)
_SECONDS = 60


@dataclass
class Run:
    client: Client
    login: str
    lines: list[dict[str, Any]]
    """What it printed."""
    jobs: list[dict[str, Any]]
    """Its jobs, as the owner sees them."""
    dependencies: list[dict[str, Any]]
    began: datetime
    ended: datetime
    exit_code: int
    errors: str
    """Its standard error."""

    @property
    def version(self) -> str:
        return next((line["version"] for line in self.lines if "version" in line), "")

    @property
    def scenarios(self) -> dict[str, dict[str, Any]]:
        return {line["scenario"]: line for line in self.lines if "scenario" in line}

    def jobs_of(self, job_type: str) -> list[dict[str, Any]]:
        return [job for job in self.jobs if job["job_type"] == job_type]

    def job(self, job_type: str) -> dict[str, Any]:
        jobs = self.jobs_of(job_type)
        assert len(jobs) == 1, f"{len(jobs)} jobs of {job_type}"
        return jobs[0]


async def run_client(client: Client, route: str, databases: Databases) -> Run:
    folder = Path(tempfile.mkdtemp(prefix="reactor-test-", dir=fast_temporary_folder()))
    login = f"client_{uuid4().hex[:12]}"
    try:
        async with databases.clone() as url, connect(url, name="test") as owner:
            await owner.execute(f"create role {login} login password '{PASSWORD}' in role reactor_producer")
            try:
                others_job = await _insert_as_another(owner)
                began = await owner.fetchval("select clock_timestamp()")
                reached = direct(url) if route == "direct" else pgbouncer(url, folder, login, PASSWORD)
                async with reached as (host, port):
                    database = await owner.fetchval("select current_database()")
                    settings = environment(host, port, login, database) | {"OTHERS_JOB": str(others_job)}
                    if route == "pgbouncer":
                        settings["POOLED"] = "1"
                    exit_code, output, errors = await _run(client, settings)
                jobs = await owner.fetch("select * from reactor.jobs where id <> $1 order by id", others_job)
                edges = await owner.fetch("select * from reactor.dependencies")
                ended = await owner.fetchval("select clock_timestamp()")
            finally:
                await owner.execute(f"drop owned by {login}; drop role {login}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Run(
        client,
        login,
        [json.loads(line) for line in output.splitlines()],
        [_plain(job) for job in jobs],
        [dict(edge) for edge in edges],
        began,
        ended,
        exit_code,
        errors,
    )


async def _insert_as_another(owner: Any) -> int:
    async with owner.transaction():
        other = f"other_{uuid4().hex[:12]}"
        await owner.execute(f"create role {other} in role reactor_producer")
        await owner.execute(f"set local role {other}")
        job: int = await owner.fetchval("insert into reactor.jobs (job_type) values ('others') returning id")
        await owner.execute("reset role")
        await owner.execute(f"drop role {other}")
    return job


def environment(host: str, port: int, user: str, database: str) -> dict[str, str]:
    return {
        "PGHOST": host,
        "PGPORT": str(port),
        "PGUSER": user,
        "PGPASSWORD": PASSWORD,
        "PGDATABASE": database,
        "DATABASE_URL": f"postgresql://{user}:{quote(PASSWORD, safe='')}@{host}:{port}/{database}",
    }


async def _run(client: Client, settings: dict[str, str]) -> tuple[int, str, str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "REACTOR_"))}
    process = await asyncio.create_subprocess_exec(
        *client.arguments,
        str(SCENARIOS),
        cwd=client.source,
        env=outside | settings,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), _SECONDS)
    except TimeoutError:
        process.kill()
        output, errors = await process.communicate()
        errors += f"\nit was stopped after {_SECONDS} s".encode()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


def _plain(job: Any) -> dict[str, Any]:
    """With JSON as objects and ids as text, as clients print them."""
    row = dict(job)
    return row | {"payload": json.loads(row["payload"]), "pipeline_id": str(row["pipeline_id"])}
