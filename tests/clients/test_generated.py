"""Clients that generators make from /openapi.json compile and work. docs/clients/generated.md has the programs."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.support.client_tools import Tools, installed
from tests.support.documents import code_blocks
from tests.support.servers import Server, StartServer

PAGE = "clients/generated.md"
BEARER = "submit-me"


@pytest.fixture
def tools() -> Tools:
    return installed("generated")


@pytest.fixture
async def running(start_server: StartServer) -> Server:
    tokens = f"ann:view+submit:{hashlib.sha256(BEARER.encode()).hexdigest()}"
    return await start_server(TOKENS=tokens)


def program(language: str, server: Server) -> str:
    """As printed, except for the placeholders."""
    (printed,) = code_blocks(PAGE, language)
    return printed.replace("http://127.0.0.1:8080", server.address).replace("TOKEN", BEARER)


def run(tools: Tools, folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, env=tools.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


async def test_a_generated_typescript_client_compiles_and_works(tools: Tools, running: Server, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(tools.folder / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    run(tools, tmp_path, "openapi-typescript", f"{running.address}/openapi.json", "--output", "reactor.d.ts")
    (tmp_path / "program.ts").write_text(program("ts", running))
    options = ("--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler")
    run(tools, tmp_path, "tsc", "--noEmit", *options, "program.ts")
    run(tools, tmp_path, "tsc", *options, "--outDir", "compiled", "program.ts")
    printed = run(tools, tmp_path, "node", "compiled/program.js").splitlines()
    assert printed[:2] == ["job 1 created", "job 1 pending 0"]
    assert printed[2].startswith("no_handler: ")


async def test_a_generated_python_client_has_correct_types_and_works(
    tools: Tools, running: Server, tmp_path: Path
) -> None:
    place = ("--meta", "none", "--output-path", "reactor_client")
    url = f"{running.address}/openapi.json"
    said = run(tools, tmp_path, "openapi-python-client", "generate", "--url", url, *place)
    assert "Warning" not in said
    (tmp_path / "program.py").write_text(program("python", running))
    check = ["mypy", "--strict", "program.py", "reactor_client"]
    found = subprocess.run(check, cwd=tmp_path, env=tools.environment, capture_output=True, text=True, check=False)
    # The same for every API: the generator copies it, errors included.
    own = [line for line in found.stdout.splitlines() if not line.startswith(("reactor_client/client.py:", "Found "))]
    assert [line for line in own if not line.startswith("Success:")] == [], found.stderr
    printed = run(tools, tmp_path, "python", "program.py").splitlines()
    assert printed[:3] == ["job 1 created", "job 1 {'file': 'a.csv'}", "job 1 pending 0"]
    assert printed[3].startswith("no_handler: ")
