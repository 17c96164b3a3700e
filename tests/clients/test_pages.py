"""The code of docs/clients runs as printed."""

import asyncio
import re
import shutil
import sys
from pathlib import Path

import pytest

from reactor import Context, Job, Registry
from reactor.database.connection import Connection
from reactor.embedded.binaries import find_programs
from tests.clients.registry import BUILD, HERE
from tests.support.claim_loops import Running

PAGES = HERE.parent.parent / "docs" / "clients"
# The page's code is meant for an async function, or for a project that has its settings.
RUN = """
import ast, asyncio, inspect, sys
code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
result = eval(code, {"__name__": "page"})
if inspect.iscoroutine(result):
    asyncio.run(result)
"""
DJANGO = """
import os
import django
from django.conf import settings
names = {"HOST": "PGHOST", "PORT": "PGPORT", "USER": "PGUSER", "PASSWORD": "PGPASSWORD", "NAME": "PGDATABASE"}
database = {name: os.environ[variable] for name, variable in names.items()}
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **database}}, USE_TZ=True)
django.setup()
"""


def blocks(page: str, language: str) -> dict[str, list[str]]:
    """The code of each section."""
    sections = re.split(r"^## ", (PAGES / page).read_text(), flags=re.MULTILINE)
    return {
        section.splitlines()[0]: re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
        for section in sections
    }


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    async def done(job: Job, ctx: Context) -> dict[str, bool]:
        return {"done": True}

    for name in ("csv_ingest", "extract", "transform", "clean_up"):
        registry.register(name)(done)
    return registry


async def run(command: list[str | Path], environment: dict[str, str], text: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(text.encode()), 60)
    assert process.returncode == 0, errors.decode()
    return output.decode()


@pytest.mark.parametrize("section", ["asyncpg", "psycopg 3", "SQLAlchemy", "Django"])
async def test_the_python_page_runs_as_printed(
    section: str, producer: dict[str, str], running: Running, connection: Connection, tmp_path: Path
) -> None:
    python = BUILD / "python" / "bin" / "python" if section == "Django" else Path(sys.executable)
    if not python.exists():
        pytest.skip("Django is not installed: make clients")
    code = blocks("python.md", "python")[section]
    models = [block for block in code if block.startswith("# models.py\n")]
    for block in models:
        (tmp_path / "models.py").write_text(block)
    program = "".join(block for block in code if block not in models)
    (tmp_path / "program.py").write_text((DJANGO if section == "Django" else "") + program)
    async with running():
        printed = await run([python, "-c", RUN, tmp_path / "program.py"], producer | {"PYTHONPATH": str(tmp_path)})
    assert printed.splitlines()[-1].startswith("completed")
    assert re.search(r"^\d+ created\n(\d+) existing$", printed, re.MULTILINE)
    assert await connection.fetchval("select count(*) from reactor.jobs where job_type = 'csv_ingest'") >= 102
    assert await connection.fetchval("select count(*) from reactor.dependencies") >= 1
    assert await connection.fetchval("select count(distinct created_by) from reactor.jobs") == 1


@pytest.mark.parametrize(("section", "file"), [("SQLAlchemy", "sqlalchemy_models.py"), ("Django", "django_models.py")])
def test_the_models_of_the_page_are_those_of_the_suite(section: str, file: str) -> None:
    [printed] = [block for block in blocks("python.md", "python")[section] if block.startswith("# models.py\n")]
    _, _, body = (HERE / "python" / file).read_text().partition('"""\n\n')
    assert printed.removeprefix("# models.py\n") == body


async def test_the_psql_page_runs_as_printed(producer: dict[str, str], connection: Connection) -> None:
    psql = shutil.which("psql") or find_programs(18) / "psql"
    [code] = [section for section in blocks("psql.md", "sql").values() if section]
    printed = await run([psql, "-v", "ON_ERROR_STOP=1"], producer, "".join(code))
    assert "created" in printed
    assert "existing" in printed
    assert await connection.fetchval("select count(*) from reactor.jobs where job_type = 'csv_ingest'") == 102
    assert await connection.fetchval("select state from reactor.jobs where job_type = 'transform'") == "waiting"
