"""The code of the pages for other languages is in programs that run."""

import asyncio
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from reactor import Context, Job, Registry
from tests.clients.registry import BUILD, HERE, selected
from tests.support.claim_loops import Running
from tests.support.servers import StartServer

DOCS = HERE.parent.parent / "docs" / "clients"


@dataclass(frozen=True)
class Page:
    """A section of docs/clients/<language>.md, and the program whose code it shows."""

    language: str
    section: str
    source: str
    command: tuple[str, ...]

    @property
    def build(self) -> Path:
        return BUILD / self.language

    @property
    def folder(self) -> Path:
        return HERE / self.language

    def arguments(self) -> list[str]:
        return [word.replace("{build}", str(self.build)) for word in (*self.command, self.source)]

    def blocks(self) -> list[str]:
        text = (DOCS / f"{self.language}.md").read_text()
        [section] = re.findall(rf"^## {self.section}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
        return re.findall(rf"^```{self.language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


PAGES = [
    Page("go", "pgx", "page.go", ("go", "run")),
    Page("java", "JDBC", "Page.java", ("java", "-cp", "{build}/*")),
    Page("perl", "DBI", "page.pl", ("perl",)),
    Page("php", "PDO", "page_pdo.php", ("php",)),
    Page("php", "Laravel", "page_eloquent.php", ("php",)),
    Page("ruby", "pg", "page_pg.rb", ("ruby",)),
    Page("ruby", "Rails", "page_active_record.rb", ("ruby",)),
]
# These sections show parts of the suite's own programs.
PARTS = [
    Page("java", "JPA", "Jpa.java", ()),
    Page("php", "Doctrine", "doctrine.php", ()),
]
# Debian has the libraries of Go as sources; modules would look for them on the network.
GO = {"GOPATH": "/usr/share/gocode", "GO111MODULE": "off", "GOCACHE": str(BUILD / "go" / "cache")}
CHOSEN = {client.language for client in selected(os.environ.get("REACTOR_TEST_CLIENTS", ""))}


def every(pages: list[Page]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", [pytest.param(page, id=f"{page.language}-{page.section}") for page in pages])


def unindented(code: str) -> str:
    return "\n".join(line.strip() for line in code.splitlines())


@every(PAGES + PARTS)
def test_a_page_shows_the_code_of_its_program(page: Page) -> None:
    program = unindented((page.folder / page.source).read_text())
    shown = page.blocks()
    assert shown
    for block in shown:
        assert unindented(block) in program, block


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    async def done(job: Job, ctx: Context) -> None:
        pass

    for name in ("csv_ingest", "extract", "load"):
        registry.register(name)(done)
    return registry


@every(PAGES)
async def test_the_program_of_a_page_runs(
    page: Page, producer: dict[str, str], running: Running, start_server: StartServer
) -> None:
    if page.language not in CHOSEN or not (page.build / ".made").exists() or not shutil.which(page.command[0]):
        pytest.skip(f"{page.language}: not chosen, or its tools are not installed: make clients")
    server = await start_server()
    async with running():
        printed = await output(page, producer | GO | {"REACTOR_URL": server.address})
    assert re.match(r"inserted \d+ \w+\nbatch 100\ndag .+\ncreated (\d+)\nexisting \1\n", printed), printed
    assert printed.endswith("end completed\n"), printed


async def output(page: Page, environment: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *page.arguments(),
        cwd=page.folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()
    return printed.decode()
