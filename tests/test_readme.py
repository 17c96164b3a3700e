"""README's code runs as printed, on a real PostgreSQL."""

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import asyncpg
import click
import httpx
import pytest

from reactor.cli import cli
from tests.support.until import until

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PRINTED_ADDRESS = "http://127.0.0.1:8080"

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Block(NamedTuple):
    language: str
    text: str


def blocks(text: str) -> list[Block]:
    text = text.replace("\\\n", "")  # one command on two lines
    return [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)]


def section(heading: str) -> list[Block]:
    _, text = README.split(f"\n## {heading}\n")
    return blocks(text.split("\n## ")[0])


def printed_commands() -> list[str]:
    """Every call of `reactor`, in the shell blocks and in the running text."""
    lines = [line for block in blocks(README) if block.language == "sh" for line in block.text.splitlines()]
    return [line for line in [*lines, *re.findall(r"`([^`\n]+)`", README)] if line.startswith("reactor ")]


class Newcomer:
    """Follows README in an empty folder; `reactor` and `python` are those of this environment."""

    def __init__(self, folder: Path, url: str, connection: Connection) -> None:
        self._folder = folder
        self._connection = connection
        outside = {name: value for name, value in os.environ.items() if not name.startswith("REACTOR_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = outside | {"PATH": path, "REACTOR_DATABASE_URL": url, "REACTOR_PORT": "0"}
        self._up: subprocess.Popen[bytes] | None = None
        self._address = ""

    async def follow(self, block: Block) -> str:
        """Does what a reader does with the block. Returns what it printed."""
        match block.language:
            case "sql":
                await self._connection.execute(block.text)
                return ""
            case "python":
                return await self._save(block.text)
            case "sh":
                return "".join([await self._type(line) for line in block.text.splitlines()])
        raise AssertionError(f"README has a block of {block.language}: say here what a reader does with it")

    async def _save(self, text: str) -> str:
        name = text.splitlines()[0].removeprefix("# ")
        (self._folder / name).write_text(text)
        return "" if name == "handlers.py" else await self._run(f"python {name}")

    async def _type(self, line: str) -> str:
        if line.startswith("reactor up "):
            await self._start(line)
            return ""
        if line.startswith("curl "):
            return await self._send(line)
        return await self._run(line)

    async def _start(self, line: str) -> None:
        log = self._folder / "up.log"
        with log.open("w") as output:
            self._up = subprocess.Popen(
                shlex.split(line), cwd=self._folder, env=self._environment, stdout=output, stderr=output
            )
        found = await until(lambda: re.search(r"http://127\.0\.0\.1:\d+", log.read_text()), 60)
        self._address = found[0]

    async def stop(self) -> int:
        assert self._up is not None
        self._up.send_signal(signal.SIGINT)
        return await asyncio.to_thread(self._up.wait, 30)

    def end(self) -> None:
        if self._up is not None:
            self._up.kill()
            self._up.wait()

    async def _run(self, line: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            ["sh", "-c", line],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    async def _send(self, line: str) -> str:
        """A machine without curl runs this too."""
        _, url, *options = shlex.split(line)
        given = dict(zip(options[::2], options[1::2], strict=True))
        headers = dict([given.pop("-H").split(": ")])
        async with httpx.AsyncClient() as client:
            answer = await client.post(
                url.replace(PRINTED_ADDRESS, self._address), headers=headers, content=given.pop("-d")
            )
        assert not given
        assert answer.status_code == 202, answer.text
        return answer.text

    async def completed(self, jobs: int) -> list[Any]:
        """The results of all jobs, once there are this many and all have completed. Fails at the first error."""

        async def results() -> list[Any]:
            rows = await self._connection.fetch("select state, result, error from reactor.jobs order by id")
            assert [row["error"] for row in rows if row["error"]] == []
            done = [row["result"] for row in rows if row["state"] == "completed"]
            return done if len(done) == len(rows) == jobs else []

        found: list[Any] = await until(results)
        return found


@pytest.fixture
async def newcomer(tmp_path: Path, database: str, connection: Connection) -> AsyncIterator[Newcomer]:
    newcomer = Newcomer(tmp_path, database, connection)
    yield newcomer
    newcomer.end()


@pytest.mark.pods
async def test_the_first_handler_runs_as_printed(newcomer: Newcomer) -> None:
    printed = [await newcomer.follow(block) for block in section("A first handler")]
    assert "Hello, world!" in printed[-1]
    [result] = await newcomer.completed(1)
    assert "Hello, world!" in str(result)
    assert await newcomer.stop() == 0


@pytest.mark.pods
async def test_the_handler_with_a_transaction_takes_jobs_from_sql_python_and_http_as_printed(
    newcomer: Newcomer, connection: Connection
) -> None:
    [start] = [block for block in section("A first handler") if block.text.startswith("reactor up")]
    for block in [*section("A handler with a transaction"), start]:
        await newcomer.follow(block)
    submits = section("Submitting a job")
    assert [block.language for block in submits] == ["sql", "python", "sh"]
    for number, block in enumerate(submits, start=1):
        printed = await newcomer.follow(block)
        assert block.language == "sql" or "created" in printed
        # Each chains one more.
        await newcomer.completed(2 * number)
    assert await connection.fetchval("select count(*) from readings") == 3 * 2
    totals = "select (result ->> 'total')::float8 from reactor.jobs where job_type = 'sum_up' order by id"
    assert [row[0] for row in await connection.fetch(totals)] == [8.0, 16.0, 24.0]
    assert await connection.fetchval("select count(*) from uploads") == 1
    assert await newcomer.stop() == 0


def test_the_commands_and_options_that_are_printed_exist() -> None:
    commands = printed_commands()
    assert len(commands) > 20
    for line in commands:
        context = click.Context(cli)
        command: click.Command = cli
        for word in shlex.split(line)[1:]:
            if word.startswith("--"):
                known = {
                    name for option in command.get_params(context) for name in (*option.opts, *option.secondary_opts)
                }
                assert word in known, f"{line}: there is no {word}"
            elif isinstance(command, click.Group) and not word.isupper():
                found = command.get_command(context, word)
                assert found is not None, f"{line}: there is no {word}"
                command = found


def test_the_extras_that_are_printed_exist() -> None:
    [extras] = re.findall(r'pip install "pg-reactor\[([a-z,]+)\]"', README)
    declared = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1]
    for extra in extras.split(","):
        assert f"\n{extra} = [" in declared
