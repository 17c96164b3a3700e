"""The code of docs/clients/node.md and docs/clients/typescript-orms.md runs as printed."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from reactor import Context, Job, Registry
from reactor.database.connection import Connection
from reactor_http.api.access import Permission
from reactor_http.auth.tokens import make_token
from tests.clients.registry import BUILD, HERE
from tests.support.claim_loops import Running
from tests.support.servers import StartServer

PAGES = HERE.parent.parent / "docs" / "clients"
MODULES = BUILD / "node" / "node_modules"
MODELS = "// models.mjs\n"


def blocks(page: str, section: str, language: str = "js") -> list[str]:
    text = (PAGES / page).read_text()
    [found] = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return re.findall(rf"^```{language}\n(.*?)^```$", found, re.DOTALL | re.MULTILINE)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    if not (MODULES.parent / ".made").exists():
        pytest.skip("node: its tools are not installed: make clients")
    (tmp_path / "node_modules").symlink_to(MODULES)
    return tmp_path


async def node(project: Path, code: str, variables: dict[str, str], *arguments: str) -> str:
    program = project / "program.mjs"
    program.write_text(code)
    process = await asyncio.create_subprocess_exec(
        "node",
        program,
        *arguments,
        env=variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    return output.decode()


SECTIONS = [
    *(("node.md", section) for section in ("node-postgres", "postgres.js", "Knex")),
    *(("typescript-orms.md", section) for section in ("Sequelize", "TypeORM", "Drizzle", "Prisma")),
]


@pytest.mark.parametrize(("page", "section"), SECTIONS)
async def test_the_node_pages_run_as_printed(
    page: str, section: str, project: Path, producer: dict[str, str], connection: Connection
) -> None:
    if section == "Prisma" and not (MODULES / ".prisma").exists():
        pytest.skip("Prisma's client is not generated: that needs Node 20 (rm -r build/clients/node)")
    code = blocks(page, section)
    if code[0].startswith(MODELS):
        (project / "models.mjs").write_text(code.pop(0))
    printed = await node(project, "\n".join(code), producer)
    assert re.fullmatch(r"\d+ [-0-9a-f]{36} pending\n\d+ created\n0\n", printed)
    assert await connection.fetchval("select count(*) from reactor.jobs where job_type = 'csv_ingest'") == 102
    states = "select array_agg(state order by id) from reactor.jobs where job_type in ('extract', 'load')"
    assert await connection.fetchval(states) == ["pending", "waiting"]
    assert await connection.fetchval("select count(*) from reactor.dependencies") == 1


@pytest.mark.parametrize("section", ["Sequelize", "TypeORM", "Drizzle"])
def test_the_models_of_an_orm_are_those_of_the_suite(section: str) -> None:
    file = HERE / "node" / "models" / f"{section.lower()}.mjs"
    assert blocks("typescript-orms.md", section)[0] == MODELS + file.read_text()


def test_the_schema_of_prisma_is_that_of_the_suite() -> None:
    """But for the columns that only the suite needs."""
    schema = (HERE / "node" / "models" / "schema.prisma").read_text()
    printed = re.sub(r"  // Of no interest.*?\n\n", "", schema, flags=re.DOTALL)
    assert blocks("typescript-orms.md", "Prisma", "prisma") == [printed]


async def test_the_node_pages_progress_runs_as_printed(
    project: Path, connection: Connection, start_server: StartServer, registry: Registry, running: Running
) -> None:
    @registry.register("report")
    async def report(job: Job, ctx: Context) -> None:
        pass

    token, entry = make_token("my_service", [Permission.VIEW])
    server = await start_server(TOKENS=entry)
    pipeline = await connection.fetchval("insert into reactor.jobs (job_type) values ('report') returning pipeline_id")
    variables = {**os.environ, "REACTOR_URL": server.address, "REACTOR_TOKEN": token}
    [code] = blocks("node.md", "Progress")
    follow = asyncio.create_task(node(project, code, variables, str(pipeline)))
    async with running():
        printed = (await follow).splitlines()
    assert printed[0] == "1 jobs"
    assert printed[-1] == "completed"
