"""The embedded PostgreSQL runs as any user, is shared, keeps its data, and stops when unused."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reactor.database.connection import connect
from reactor.embedded import EmbeddedServer, binaries, default_folder, installed_versions, start_embedded
from reactor.errors import EmbeddedFailed, ProgramsMissing
from tests.support.until import wait_until

FAST = {"fsync": "off"}
VERSION = 18

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user: run as root")

USER_OF_A_SERVER = """
import sys
from pathlib import Path
from reactor.embedded import start_embedded
with start_embedded(Path(sys.argv[1]), version=18, options={"fsync": "off"}) as server:
    print((server.home / "data" / "postmaster.pid").read_text().split()[0], flush=True)
    sys.stdin.read()
"""


ACCOUNT_AFTER_INPUT = """
import sys
from reactor.embedded.account import server_account
print("ready", flush=True)
sys.stdin.readline()
print(server_account("reactor-race").uid)
"""


def start(folder: Path) -> EmbeddedServer:
    return start_embedded(folder, version=VERSION, options=FAST)


def another_process(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", USER_OF_A_SERVER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def postmaster(server: EmbeddedServer) -> str:
    return (server.home / "data" / "postmaster.pid").read_text().split()[0]


def processes_about(folder: Path) -> list[str]:
    """Command lines that contain the folder, from ps, which also works on macOS."""
    listing = subprocess.run(["ps", "axww", "-o", "args="], capture_output=True, text=True, check=True).stdout
    return [row for row in listing.splitlines() if str(folder) in row]


async def run(server: EmbeddedServer, statement: str) -> object:
    async with connect(server.url(), name="test") as connection:
        return await connection.fetchval(statement)


async def test_the_server_keeps_its_data_between_runs(folder: Path) -> None:
    with start(folder) as server:
        await run(server, "create table kept as select 42 as answer")
    assert not server.is_running()
    with start(folder) as server:
        assert await run(server, "select answer from kept") == 42


async def test_processes_share_one_server_and_the_last_stops_it(folder: Path) -> None:
    first = start(folder)
    with another_process(folder) as other:
        assert line(other) == postmaster(first)
        first.close()
        assert first.is_running()
        other.communicate()
    assert not first.is_running()


async def test_processes_that_start_concurrently_get_the_same_server(folder: Path) -> None:
    users = [another_process(folder) for _ in range(5)]
    assert len({line(user) for user in users}) == 1
    for user in users:
        user.communicate()
    wait_until(lambda: not processes_about(folder))


def start_and_close(folder: Path) -> EmbeddedServer:
    server = start(folder)
    server.close()
    return server


async def test_a_server_whose_last_user_was_killed_is_stopped(folder: Path) -> None:
    server = start(folder)
    with another_process(folder) as other:
        line(other)
        server.close()
        assert server.is_running()
        other.send_signal(signal.SIGKILL)
    wait_until(lambda: not server.is_running())


async def test_no_process_is_left_running(folder: Path) -> None:
    start_and_close(folder)
    wait_until(lambda: not processes_about(folder))


async def test_the_server_keeps_running_for_a_process_that_joins_during_a_stop(folder: Path) -> None:
    server = start(folder)
    with another_process(folder) as other:
        line(other)
        for _ in range(20):
            server.close()
            server = start(folder)
        server.close()
        other.send_signal(signal.SIGKILL)
    wait_until(lambda: not processes_about(folder))


@pytest.mark.parametrize("name", ["it's a path ünïcödé %s", "a, b", "a" * 120])
async def test_unusual_folder_names_work(folder: Path, name: str) -> None:
    with start(folder / name) as server:
        assert await run(server, "select 1") == 1


async def test_only_the_owner_can_connect(folder: Path) -> None:
    with start(folder) as server:
        assert server.socket_folder.stat().st_mode & 0o077 == 0
        assert await run(server, "show listen_addresses") == ""


async def test_environment_variables_of_other_servers_are_ignored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGPORT": "1", "PGDATA": "/nowhere", "PGHOST": "nowhere", "PGUSER": "nowhere"}.items():
        monkeypatch.setenv(name, value)
    with start(folder) as server:
        assert server.is_running()


def test_a_server_that_can_not_start_reports_the_reason(folder: Path) -> None:
    with pytest.raises(EmbeddedFailed) as caught:
        start_embedded(folder, version=VERSION, options=FAST | {"shared_buffers": "plenty"})
    assert 'invalid value for parameter "shared_buffers": "plenty"' in str(caught.value)
    assert "REACTOR_DATABASE_URL" in caught.value.remedy
    start_and_close(folder)


def test_a_folder_that_can_not_be_created_is_named(folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(EmbeddedFailed, match="file/postgresql-18 can't be used: Not a directory"):
        start(folder / "file")


def test_a_version_that_is_not_installed_is_refused() -> None:
    with pytest.raises(ProgramsMissing, match=f"PostgreSQL 99.*found: {', '.join(map(str, installed_versions()))}"):
        start_embedded(version=99)


async def test_an_interrupted_initdb_is_repeated(folder: Path) -> None:
    half = folder / f"postgresql-{VERSION}" / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with start(folder) as server:
        assert await run(server, "select 1") == 1


@as_root
def test_processes_that_create_the_account_concurrently_get_the_same_one() -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", ACCOUNT_AFTER_INPUT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    try:
        for racer in racers:
            line(racer)
        for racer in racers:
            assert racer.stdin is not None
            print(file=racer.stdin, flush=True)
    finally:
        uids = {racer.communicate()[0] for racer in racers}
        subprocess.run(["userdel", "reactor-race"], check=True)
    assert len(uids) == 1


@as_root
async def test_as_root_the_server_runs_as_another_user_and_permissions_stay(folder: Path) -> None:
    private = folder / "private"
    private.mkdir(mode=0o711)
    modes = {path: path.stat().st_mode for path in [private, *private.parents, *Path(sys.prefix).parents]}
    with start(private / "pg") as server:
        assert Path(f"/proc/{postmaster(server)}").stat().st_uid != 0
        assert await run(server, "select 1") == 1
    assert {path: path.stat().st_mode for path in modes} == modes


@as_root
def test_as_root_a_folder_that_the_server_may_not_enter_is_refused(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EmbeddedFailed, match="may not enter"):
        start(closed / "pg")
    assert closed.stat().st_mode & 0o777 == 0o700


@as_root
async def test_as_root_programs_that_the_server_may_not_enter_are_copied(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = binaries.find_programs(VERSION)
    wheel = original.parent.parent
    site = tmp_path / "site"
    site.mkdir(mode=0o700)
    shutil.copytree(original.parent, site / wheel.name / original.parent.name, symlinks=True)
    shutil.copytree(wheel.with_name(f"{wheel.name}.libs"), site / f"{wheel.name}.libs")
    closed = site / wheel.name / original.parent.name / "bin"
    monkeypatch.setattr(binaries, "find_programs", lambda version: closed)
    with start(folder) as server:
        assert await run(server, "select 1") == 1
    assert site.stat().st_mode & 0o777 == 0o700


def test_data_is_in_a_system_folder_for_root_and_in_the_home_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_folder() == Path("/var/lib/reactor")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", "/home/user/data")
    assert default_folder() == Path("/home/user/data/reactor")


async def test_closing_twice_and_starting_in_a_thread_work(folder: Path) -> None:
    server = await asyncio.to_thread(start, folder)
    server.close()
    server.close()
    assert not server.is_running()
