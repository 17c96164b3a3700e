"""The command line: help with examples, errors with remedies, exit codes for scripts."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import call
from tests.support.until import wait_until


def environment(**settings: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("REACTOR_")}
    return clean | {f"REACTOR_{name.upper()}": value for name, value in settings.items()}


def reactor(*arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Runs the command in its own process, for tests that need one."""
    command = [sys.executable, "-m", "reactor", *arguments]
    return subprocess.run(command, env=environment(**settings), capture_output=True, text=True, timeout=60)


def test_help_lists_the_first_commands_to_try() -> None:
    done = call("--help")
    assert done.returncode == 0
    for word in ("up", "migrate", "doctor", "REACTOR_DATABASE_URL", "Exit codes"):
        assert word in done.stdout


@pytest.mark.parametrize("command", ["up", "worker", "serve", "migrate", "doctor", "token"])
def test_every_command_has_help(command: str) -> None:
    assert len(call(command, "--help").stdout) > 200


def test_an_unknown_command_is_a_usage_error() -> None:
    assert reactor("explode").returncode == 2


def test_an_invalid_setting_is_a_usage_error_that_names_it() -> None:
    done = call("doctor", lease_seconds="soon")
    assert done.returncode == 2
    assert "REACTOR_LEASE_SECONDS" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unreachable_server_is_reported_without_a_traceback() -> None:
    done = reactor("migrate", database_url="postgresql://u:hush@127.0.0.1:1/x")
    assert done.returncode == 1
    assert "Is the server running" in done.stderr
    assert "Traceback" not in done.stderr
    assert "hush" not in done.stderr


def test_serve_reports_an_unmigrated_database(server: str) -> None:
    done = reactor("serve", "--port", "0", database_url=server)
    assert done.returncode == 1
    assert "Run `reactor migrate`" in done.stderr


async def test_a_second_migrate_reports_the_current_revision(database: str) -> None:
    assert re.search("at revision .* already", call("migrate", database_url=database).stdout)


async def test_a_downgrade_asks_for_confirmation(database: str) -> None:
    assert call("migrate", "--down-to", "base", database_url=database).returncode == 1
    done = call("migrate", "--down-to", "base", "--yes", database_url=database)
    assert "at revision base (was: " in done.stdout


async def test_doctor_prints_findings_as_json(database: str) -> None:
    def is_healthy() -> bool:
        done = call("doctor", "--json", database_url=database)
        return (done.returncode, {finding["level"] for finding in json.loads(done.stdout)}) == (0, {"ok"})

    # On a busy machine a notification may take 2 s, which is reported as a problem.
    wait_until(is_healthy)


def test_doctor_exits_with_1_when_there_is_a_problem(server: str) -> None:
    done = call("doctor", database_url=server)
    assert done.returncode == 1
    assert "reactor migrate" in done.stdout


@contextmanager
def running(*arguments: str, **settings: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "reactor", *arguments]
    process = subprocess.Popen(
        command, env=environment(**settings), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def page_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"http://\S+?(?=/?[\s\"])", line)
        if found:
            return found.group()
    raise AssertionError("the process ended without printing its URL")


def is_ready(page: str) -> bool:
    try:
        with urllib.request.urlopen(f"{page}/health/ready") as answer:
            return bool(json.load(answer)["status"] == "ok")
    except urllib.error.HTTPError as refused:
        refused.close()
        return False


def readiness_problem(page: str) -> str:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{page}/health/ready")
    with caught.value as refused:
        assert refused.code == 503
        return str(json.load(refused)["database"])


def states_of(pipeline: str, folder: Path) -> list[str]:
    done = call("jobs", "--pipeline", pipeline, "--json", embedded_dir=str(folder))
    return [job["state"] for job in json.loads(done.stdout)["jobs"]]


def test_up_starts_everything_stops_cleanly_and_starts_again(folder: Path) -> None:
    with running("up", "--port", "0", embedded_dir=str(folder)) as process:
        pipeline = _wait_for_demo(process)
        wait_until(lambda: states_of(pipeline, folder) == ["completed"] * 5)
        # The job that the greeting suggests is run too.
        assert call("submit", "demo.hello", embedded_dir=str(folder)).returncode == 0
        wait_until(
            lambda: '"completed"' in call("jobs", "--type", "demo.hello", "--json", embedded_dir=str(folder)).stdout
        )
        _stop_cleanly(process, signal.SIGINT, folder)
    with running("up", "--port", "0", embedded_dir=str(folder)) as process:
        assert _wait_for_demo(process) != pipeline
        _stop_cleanly(process, signal.SIGTERM, folder)


def _wait_for_demo(process: "subprocess.Popen[str]") -> str:
    """Waits for the page and returns the id of the demo pipeline that was printed."""
    page = page_of(process)
    wait_until(lambda: is_ready(page))
    with urllib.request.urlopen(page) as answer:
        assert b"<title>reactor</title>" in answer.read()
    assert process.stdout is not None
    shown = next(line.split()[-1] for line in process.stdout if line.startswith("  demo "))
    assert shown.startswith(page), "the demo is printed with the URL of the page"
    return shown.rpartition("=")[2]


def _stop_cleanly(process: "subprocess.Popen[str]", stop: signal.Signals, folder: Path) -> None:
    process.send_signal(stop)
    rest, _ = process.communicate(timeout=40)
    assert process.returncode == 0
    assert rest.endswith("Stopped.\n")
    assert not list(folder.glob("*/socket/.s*")), "the embedded server still runs"


async def test_up_reports_an_invalid_app_without_a_traceback(database: str) -> None:
    done = reactor("up", "--app", "no_such_module", "--port", "0", database_url=database)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "no_such_module" in done.stderr


async def test_a_missing_schema_makes_readiness_fail_but_not_liveness(database: str) -> None:
    with running("serve", "--port", "0", database_url=database) as process:
        page = page_of(process)
        assert call("migrate", "--down-to", "base", "--yes", database_url=database).returncode == 0
        # On a busy machine the first answer may be that the database is slow.
        wait_until(lambda: "revision" in readiness_problem(page))
        with urllib.request.urlopen(f"{page}/health/live") as answer:
            assert answer.status == 200


async def test_a_port_in_use_is_reported_with_a_remedy(database: str) -> None:
    with running("serve", "--port", "0", database_url=database) as process:
        port = page_of(process).rsplit(":", 1)[1]
        done = reactor("serve", "--port", port, database_url=database)
    assert done.returncode == 1
    assert "--port" in done.stderr


@pytest.mark.parametrize("command", ["up", "serve"])
async def test_a_server_without_tokens_binds_to_loopback_only(database: str, command: str) -> None:
    done = reactor(command, "--host", "0.0.0.0", "--port", "0", database_url=database)
    assert done.returncode == 2
    assert "loopback" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["up", "serve"])
async def test_invalid_tokens_are_reported_without_a_traceback(database: str, command: str) -> None:
    done = reactor(command, "--port", "0", database_url=database, tokens="hush")
    assert done.returncode == 2
    assert "reactor token NAME" in done.stderr
    assert "Traceback" not in done.stderr
    assert "hush" not in done.stderr


@pytest.mark.parametrize(
    ("app", "problem"),
    [
        ("nothing.here", "there is no such module"),
        ("json", "it registers no handler"),
        ("broken_app", "ZeroDivisionError"),
    ],
)
async def test_a_worker_reports_an_invalid_app(
    database: str, tmp_path: Path, app: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_app.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    done = reactor("worker", "--app", app, database_url=database)
    assert done.returncode == 1
    assert problem in done.stderr


def test_a_worker_needs_a_migrated_database(server: str) -> None:
    done = reactor("worker", "--app", "json", database_url=server)
    assert done.returncode == 1
    assert "reactor migrate" in done.stderr


def test_a_worker_needs_a_database_that_it_can_write_to(database: str) -> None:
    done = reactor("worker", "--app", "reactor.demo", database_url=f"{database}&default_transaction_read_only=on")
    assert done.returncode == 1
    assert "read-only" in done.stderr
    assert "Use the address of the primary" in done.stderr
    assert "internal error" not in done.stderr


def test_max_jobs_requires_one_process() -> None:
    assert call("worker", "--app", "json", "--max-jobs", "3", "--processes", "2").returncode == 2
