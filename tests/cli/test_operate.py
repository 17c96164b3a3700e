"""The operators' commands: output as text and JSON, exit codes, and untrusted text."""

import getpass
import json
import os
import re
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from reactor.cli.output import ProgressReporter, printable
from reactor.cli.session import current_operator
from reactor.database.connection import Connection
from reactor.job import JobState
from reactor.lifecycle.claim import claim_one
from reactor.lifecycle.lease import Worker, register_worker, retire_worker
from reactor.queries.jobs import list_jobs
from tests.support.command import Done, call
from tests.support.jobs import insert

Reactor = Callable[..., Done]

COMMANDS = [
    "submit",
    "jobs",
    "why",
    "cancel",
    "retry",
    "recover",
    "pause",
    "resume",
    "drain",
    "schedules",
    "types",
    "prune",
]
# Clears the screen, changes colour and direction of text, and contains markup of rich.
HOSTILE = "\x1b[2J\x1b[31m[red]x[/red]\x07\u202e\u009b1m\r[link=http://evil]"


@pytest.fixture
def reactor(database: str) -> Reactor:
    """Calls a command with this test's database."""
    return lambda *arguments, **options: call(*arguments, database_url=database, **options)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    done = call(command, "--help")
    assert done.returncode == 0
    assert f"\n    reactor {command}" in done.stdout


def test_commands_report_an_unreachable_server() -> None:
    done = call("jobs", database_url="postgresql://u:hush@127.0.0.1:1/x")
    assert done.returncode == 1
    assert "Is the server running" in done.stderr
    assert "hush" not in done.stderr


def test_commands_report_a_missing_schema(server: str) -> None:
    done = call("why", "1", database_url=server)
    assert done.returncode == 1
    assert "Run `reactor migrate`" in done.stderr


async def test_a_missing_privilege_names_the_role_that_has_it(database: str, connection: Connection) -> None:
    name = f"reactor_test_{os.getpid()}"
    await connection.execute(f"create role {name} login superuser; alter role {name} set role = 'reactor_viewer'")
    try:
        url = re.sub("//([^@/]*@)?", f"//{name}@", database, count=1)
        assert call("drain", database_url=url).returncode == 0
        done = call("drain", "on", database_url=url)
        assert done.returncode == 1
        assert "reactor_worker" in done.stderr
    finally:
        await connection.execute(f"drop role {name}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["why", "x"],
        ["why", "0"],
        ["cancel", "99999999999999999999"],
        ["cancel"],
        ["drain", "maybe"],
        ["jobs", "--state", "sleeping"],
        ["jobs", "1", "--state", "running"],
        ["submit", "work", "{}", "--delay", "soon"],
        ["submit", "work", "{}", "--run-after", "tomorrow"],
        ["submit", "work", "{}", "--delay", "5m", "--run-after", "2030-01-01"],
        ["submit", "work", "{}", "--exclusive"],
        ["submit", "work", "{}", "--timeout", "0"],
        ["submit", "work", "[1]"],
        ["submit", "work", "@/nowhere"],
    ],
)
def test_invalid_arguments_are_usage_errors(arguments: list[str]) -> None:
    """They are found before connecting."""
    assert call(*arguments, database_url="postgresql://127.0.0.1:1/x").returncode == 2


async def test_submit_sets_every_option(reactor: Reactor, connection: Connection) -> None:
    done = reactor(
        *["submit", "work", '{"file": "ä"}', "--queue=q", "--priority=-5", "--delay=1h", "--max-attempts=7"],
        *["--timeout=5m", "--tag=a", "--tag=b", "--scope=s", "--exclusive", "--key=k", "--submitted-by=alice"],
        *["--at-most-once", "--meta=region=eu", "--meta=year=2026", '--meta=deep={"a": [1]}'],
        "--pipeline=6f1bd4a0-0000-4000-8000-000000000001",
    )
    assert done.returncode == 0
    assert re.fullmatch(r"job \d+  pipeline 6f1bd4a0-\S+  created\n", done.stdout)
    row = await connection.fetchrow(
        "select *, run_after - created_at between '59 minutes' and '1 hour' as is_in_an_hour from reactor.jobs"
    )
    assert row
    assert (row["queue"], row["priority"], row["max_attempts"], row["timeout_seconds"]) == ("q", -5, 7, 300)
    assert (row["tags"], row["scope"], row["exclusive"], row["idempotency_key"]) == (["a", "b"], "s", True, "k")
    assert row["is_in_an_hour"]
    assert (row["submitted_by"], row["delivery"]) == ("alice", "at_most_once")
    assert json.loads(row["meta"]) == {"region": "eu", "year": 2026, "deep": {"a": [1]}}
    assert json.loads(row["payload"]) == {"file": "ä"}


async def test_submit_returns_the_job_of_a_repeated_key_and_fails_on_a_busy_scope(reactor: Reactor) -> None:
    first = json.loads(reactor("submit", "work", "--key=k", "--scope=s", "--exclusive", "--json").stdout)
    again = reactor("submit", "work", "--key=k", "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout) == first | {"outcome": "existing", "warning": None}
    busy = reactor("submit", "work", "--scope=s", "--exclusive")
    assert busy.returncode == 1
    assert f"job {first['id']}" in busy.stderr


async def know_type(connection: Connection) -> None:
    """A live worker has published `csv_ingest`."""
    await register_worker(connection, Worker("pod-7", {"csv_ingest": None}), 600)
    await connection.execute(
        "insert into reactor.job_types"
        " (name, delivery, is_checked, version, payload_schema, description, timeout_seconds)"
        " values ('csv_ingest', 'at_least_once', true, 'v', $1, 'Reads a file.', 90)",
        '{"type": "object", "properties": {"file": {"type": "string"}, "rows": {}}, "required": ["file"]}',
    )


async def test_submit_refuses_a_payload_that_does_not_fit_and_warns_of_a_type_without_a_pod(
    reactor: Reactor, connection: Connection
) -> None:
    """F1, F13"""
    await know_type(connection)
    refused = reactor("submit", "csv_ingest", '{"file": 7}')
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "payload.file must be a string" in refused.stderr
    assert "`reactor types csv_ingest` shows the schema" in refused.stderr
    good = reactor("submit", "csv_ingest", '{"file": "a.csv"}')
    assert (good.returncode, good.stderr) == (0, "")
    unknown = reactor("submit", "csv_ingst")
    assert unknown.returncode == 0
    assert unknown.stderr == (
        "warning: No live pod has a handler for csv_ingst: the job waits for one. Did you mean csv_ingest?\n"
    )


async def test_types_lists_what_pods_have_handlers_for(reactor: Reactor, connection: Connection) -> None:
    """F13"""
    assert reactor("types").stderr == "No pod has published a job type.\n"
    await know_type(connection)
    listed = reactor("types").stdout.splitlines()
    assert listed[0].split()[:2] == ["NAME", "PODS"]
    assert re.match(r"csv_ingest +1 +20\S+ .* 3 +1 min 30 s +file\*, rows +Reads a file\.", listed[1]), listed
    [found] = json.loads(reactor("types", "--json").stdout)
    assert (found["pods"], found["payload_schema"]["required"]) == (["pod-7"], ["file"])
    assert '"required"' in reactor("types", "csv_ingest").stdout
    missing = reactor("types", "other")
    assert (missing.returncode, "No pod has published" in missing.stderr) == (1, True)


async def test_submit_reads_the_payload_from_a_file_or_standard_input(
    reactor: Reactor, connection: Connection, tmp_path: Path
) -> None:
    (tmp_path / "payload.json").write_text('{"from": "file"}')
    assert reactor("submit", "work", f"@{tmp_path}/payload.json").returncode == 0
    assert reactor("submit", "work", "-", stdin=b'{"from": "stdin"}').returncode == 0
    payloads = await connection.fetch("select payload ->> 'from' as source from reactor.jobs order by id")
    assert [row["source"] for row in payloads] == ["file", "stdin"]


def test_invalid_json_is_reported_with_its_position() -> None:
    done = call("submit", "work", "-", stdin=b'{"a": 1,\n "b": }')
    assert done.returncode == 2
    assert "line 2, column 7" in done.stderr
    assert "not UTF-8 at byte 1" in call("submit", "work", "-", stdin=b'"\xff"').stderr


async def test_an_error_of_the_database_is_printed_with_its_remedy(reactor: Reactor) -> None:
    done = reactor("submit", " work")
    assert done.returncode == 1
    assert "without a space at either end" in done.stderr


async def test_jobs_lists_newest_first_and_prints_the_command_for_the_next_page(
    reactor: Reactor, connection: Connection
) -> None:
    """J14: the most recent."""
    ids = [await insert(connection, tags=["a b"]) for _ in range(3)]
    done = reactor("jobs", "--limit=2", "--tag=a b")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["ID", str(ids[2]), str(ids[1])]
    assert f"reactor jobs '--tag=a b' --limit=2 --before={ids[1]}" in done.stderr
    page = json.loads(reactor("jobs", "--limit=2", f"--before={ids[1]}", "--json").stdout)
    assert ([job["id"] for job in page["jobs"]], page["before"]) == ([ids[0]], None)


async def test_jobs_are_found_by_facts_and_the_next_page_too(reactor: Reactor, connection: Connection) -> None:
    ids = [await insert(connection, meta=meta) for meta in ('{"a": "x y", "b": 1}', '{"a": "x y", "b": 2}') * 2]
    done = reactor("jobs", "--meta=a=x y", "--meta=b=1", "--limit=1")
    assert done.stdout.splitlines()[1].split()[0] == str(ids[2])
    command = shlex.split(done.stderr.rpartition("More: reactor ")[2])
    assert reactor(*command).stdout.splitlines()[1].split()[0] == str(ids[0])


@pytest.mark.parametrize("value", ["NaN", "[" * 9000, '"\\u0000"', "a=b"], ids=["nan", "deep", "nul", "equals"])
async def test_a_fact_that_is_not_json_is_a_text(reactor: Reactor, connection: Connection, value: str) -> None:
    assert reactor("submit", "work", f"--meta=x={value}").returncode == 0
    assert json.loads(await connection.fetchval("select meta from reactor.jobs")) == {"x": value}
    assert len(json.loads(reactor("jobs", f"--meta=x={value}", "--json").stdout)["jobs"]) == 1


async def test_a_job_of_the_command_line_was_submitted_by_its_user(reactor: Reactor, connection: Connection) -> None:
    """F2"""
    assert reactor("submit", "work").returncode == 0
    assert await connection.fetchval("select submitted_by from reactor.jobs") == current_operator().who


@pytest.mark.parametrize("state", [state.value for state in JobState if state != JobState.RUNNING])
async def test_the_printed_command_for_the_next_page_works_for_every_state(
    reactor: Reactor, connection: Connection, state: str
) -> None:
    for _ in range(2):
        await insert(connection)
    await connection.execute("update reactor.jobs set state = $1", state)
    done = reactor("jobs", "--state", state, "--limit", "1")
    assert done.returncode == 0, done.stderr
    command = shlex.split(done.stderr.rpartition("More: reactor ")[2])
    assert reactor(*command).returncode == 0


async def test_jobs_searches_to_the_end_for_rare_jobs_and_reports_progress(
    reactor: Reactor, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reactor.cli.jobs.list_jobs", partial(list_jobs, max_scanned=2))
    monkeypatch.setattr(ProgressReporter, "interval_seconds", 0)
    rare = await insert(connection, tags=["rare"])
    newer = [await insert(connection) for _ in range(5)]
    done = reactor("jobs", "--tag", "rare", "--json")
    assert [job["id"] for job in json.loads(done.stdout)["jobs"]] == [rare]
    assert done.stderr.splitlines()[0] == f"searching jobs before {newer[3]}, 0 found so far"


@pytest.mark.parametrize("columns", [40, 80])
async def test_a_table_fits_the_terminal_and_is_not_truncated_elsewhere(
    reactor: Reactor, connection: Connection, columns: int
) -> None:
    job_id = await insert(connection, job_type="t" * 200, queue="漢" * 60)
    await connection.execute("update reactor.jobs set status_message = $1", "m" * 300)
    lines = reactor("jobs", columns=columns).stdout.splitlines()
    assert len(lines) == 2
    assert max(len(line) + line.count("漢") for line in lines) <= columns
    assert lines[1].startswith(str(job_id))
    assert "m" * 300 in reactor("jobs").stdout


@pytest.mark.parametrize("state", ["failed", "pending"])
async def test_a_list_shows_the_first_line_of_an_error_and_a_job_all_of_it(
    reactor: Reactor, connection: Connection, state: str
) -> None:
    job_id = await insert(connection)
    error = 'ValueError: no such file\n\n  File "handlers.py", line 8, in ingest'
    await connection.execute("update reactor.jobs set state = $1, error = $2", state, error)
    assert reactor("jobs").stdout.splitlines()[1].endswith("ValueError: no such file")
    assert "in ingest" in reactor("jobs", str(job_id)).stdout


async def test_control_characters_are_escaped(reactor: Reactor, connection: Connection) -> None:
    job_id = await insert(connection, payload=json.dumps({"x": HOSTILE}), tags=[HOSTILE])
    await connection.execute(
        "update reactor.jobs set state = 'failed', status_message = $1, error = $1, locked_by = $1",
        HOSTILE,
    )
    await connection.execute(
        "insert into reactor.steps (job_id, name, position, error) values ($1, $2, 1, $2)", job_id, HOSTILE
    )
    for arguments in (["jobs"], ["jobs", str(job_id)], ["why", str(job_id)], ["jobs", str(job_id), "--json"]):
        done = reactor(*arguments)
        assert done.returncode == 0
        assert not set(done.stdout) & {"\x1b", "\x07", "\u202e", "\u009b", "\r"}, arguments
        assert "[red]x[/red]" in done.stdout
        assert "\\x1b[2J" in done.stdout or "\\u001b[2J" in done.stdout


def test_printable_keeps_newlines_only_on_request() -> None:
    assert printable("a\nb\tc") == "a\\nb\\tc"
    assert printable("a\nb\x00") == "a\\nb\\x00"
    assert printable("a\nb\u2028", keep_newlines=True) == "a\nb\\u2028"
    assert printable("grün 漢") == "grün 漢"


async def test_one_job_is_shown_in_full(reactor: Reactor, connection: Connection, worker: Worker) -> None:
    """J14: by id."""
    job_id = await insert(connection, payload='{"file": "grün.csv"}', scope="year=2026")
    await connection.execute("insert into reactor.steps (job_id, name, position) values ($1, 'day 1', 1)", job_id)
    done = reactor("jobs", str(job_id))
    for words in ('"file": "grün.csv"', "year=2026", "steps", "day 1"):
        assert words in done.stdout
    [headings] = [line.split() for line in done.stdout.splitlines() if line.startswith("NAME ")]
    assert (headings[:2], headings[-1]) == (["NAME", "STATE"], "ERROR")
    job = json.loads(reactor("jobs", str(job_id), "--json").stdout)
    assert (job["payload"], job["steps"][0]["name"]) == ({"file": "grün.csv"}, "day 1")
    unknown = reactor("jobs", "999")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "There is no job 999" in unknown.stderr


async def test_why_prints_text_or_json(reactor: Reactor, connection: Connection) -> None:
    job_id = await insert(connection)
    assert "No pod is alive" in reactor("why", str(job_id)).stdout
    answer = json.loads(reactor("why", str(job_id), "--json").stdout)
    assert (answer["job_id"], answer["state"]) == (job_id, "pending")
    assert [reason["code"] for reason in answer["reasons"]] == ["no_handler"]


async def test_cancel_and_retry_report_every_job_and_exit_with_1_if_one_is_unchanged(
    reactor: Reactor, connection: Connection, worker: Worker
) -> None:
    running, pending = await insert(connection), await insert(connection)
    assert await claim_one(connection, worker, running)
    done = reactor("cancel", str(running), str(pending), "--reason", "wrong file")
    assert done.returncode == 0
    assert "its handler is asked to stop" in done.stdout
    errors = await connection.fetch("select distinct error from reactor.jobs")
    assert [row["error"] for row in errors] == ["wrong file"]

    again = reactor("cancel", str(pending))
    assert (again.returncode, "already cancelled" in again.stderr) == (0, True)
    unknown = reactor("cancel", "999", "--json")
    assert (unknown.returncode, json.loads(unknown.stdout)["unknown"]) == (1, [999])

    assert reactor("retry", str(pending)).stdout == f"job {pending}: pending\n"
    twice = reactor("retry", str(pending))
    assert (twice.returncode, "only finished jobs" in twice.stderr) == (1, True)

    who = await connection.fetchval("select distinct who || ' ' || came_from from reactor.audit")
    assert re.fullmatch(rf"{getpass.getuser()}@\S+ cli", who)


async def test_a_retry_into_a_taken_scope_names_the_holder(reactor: Reactor, connection: Connection) -> None:
    old = await insert(connection, scope="s", exclusive=True)
    assert reactor("cancel", str(old)).returncode == 0
    holder = await insert(connection, scope="s", exclusive=True)
    done = reactor("retry", str(old))
    assert done.returncode == 1
    assert f"job {holder} holds its scope" in done.stderr


async def test_recover_is_refused_while_the_worker_is_alive(
    reactor: Reactor, connection: Connection, worker: Worker
) -> None:
    """P7: refused while the worker is alive."""
    job_id = await insert(connection)
    assert await claim_one(connection, worker, job_id)
    refused = reactor("recover", str(job_id))
    assert (refused.returncode, "is alive" in refused.stderr) == (1, True)
    await retire_worker(connection, worker.id)
    assert json.loads(reactor("recover", str(job_id), "--json").stdout) == {"jobs": {str(job_id): "pending"}}
    assert await connection.fetchval("select state from reactor.jobs") == "pending"


async def test_a_pipeline_without_a_job_to_cancel_or_retry_is_reported(
    reactor: Reactor, connection: Connection
) -> None:
    job = await insert(connection)
    pipeline = str(await connection.fetchval("select pipeline_id from reactor.jobs where id = $1", job))
    for command, state in (("retry", "running"), ("cancel", "completed"), ("retry", "completed")):
        if state == "completed":
            await connection.execute("update reactor.jobs set state = 'completed'")
        done = reactor(command, "--pipeline", pipeline)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"The pipeline is {state}: it has no job to {command}." in done.stderr


async def test_queues_are_paused_listed_and_resumed(reactor: Reactor) -> None:
    assert "No queue is paused" in reactor("pause").stderr
    assert "is paused:" in reactor("pause", "imports").stdout
    assert re.search(r"imports +yes", reactor("pause").stdout)
    assert json.loads(reactor("resume", "imports", "--json").stdout) == {
        "queue": "imports",
        "paused": False,
        "was_paused": True,
    }
    assert "was not paused" in reactor("resume", "imports").stdout


async def test_limits_are_set_listed_and_removed_on_the_command_line(reactor: Reactor) -> None:
    assert "no limits" in reactor("limits").stderr
    key = ("--type", "charge", "--lane", "*")
    values = ("--max-running", "5", "--rate", "9", "--period", "1m", "--burst", "7")
    assert reactor("limits", "set", *key, *values).returncode == 0
    (line,) = [line for line in reactor("limits").stdout.splitlines() if "charge" in line]
    assert line.split()[:10] == ["any", "charge", "*", "0", "5", "9", "per", "1", "min", "7"]
    in_queue = ("--queue", "mail", *key)
    assert reactor("limits", "set", *in_queue, "--max-running", "1").returncode == 0
    listed = json.loads(reactor("limits", "--json").stdout)
    assert [(limit["queue"], limit["max_running"]) for limit in listed] == [("", 5), ("mail", 1)]
    assert "is removed" in reactor("limits", "remove", *in_queue).stdout
    assert json.loads(reactor("limits", "--json").stdout)[0]["period_seconds"] == 60
    assert "is removed" in reactor("limits", "remove", *key).stdout
    assert "There is no limit" in reactor("limits", "remove", *key).stderr
    assert "neither a queue nor a job type" in reactor("limits", "set", "--max-running", "5").stderr


async def test_draining_is_turned_on_and_off_and_shown(reactor: Reactor) -> None:
    assert "off" in reactor("drain").stdout
    assert "Draining is on" in reactor("drain", "on").stdout
    assert json.loads(reactor("drain", "--json").stdout) == {"draining": True}
    assert "Draining is off" in reactor("drain", "off").stdout


async def test_a_whole_pipeline_is_cancelled_and_retried(reactor: Reactor, connection: Connection) -> None:
    pipeline = str(uuid4())
    ids = [await insert(connection, pipeline_id=pipeline) for _ in range(3)]
    other = await insert(connection)
    done = reactor("cancel", "--pipeline", pipeline, "--json")
    assert done.returncode == 0
    assert {int(job_id) for job_id in json.loads(done.stdout)["cancelled"]} == set(ids)
    assert reactor("retry", "--pipeline", pipeline).returncode == 0
    states = await connection.fetch("select state from reactor.jobs")
    assert {row["state"] for row in states} == {"pending"}
    assert reactor("cancel", "--pipeline", str(uuid4())).returncode == 1
    assert reactor("cancel", str(other), "--pipeline", pipeline).returncode == 2
    assert reactor("cancel").returncode == 2


async def test_schedules_are_listed_enabled_disabled_run_and_removed(reactor: Reactor, connection: Connection) -> None:
    assert "no schedules" in reactor("schedules").stderr
    await connection.execute(
        "insert into reactor.schedules (name, job_type, cron, every, timezone, error) values "
        "('nightly', 'report', '0 3 * * *', null, 'Europe/Zurich', null), "
        "('often', 'work', null, '90 seconds', 'UTC', null), ('odd', 'work', 'x', null, 'UTC', $1)",
        HOSTILE,
    )
    lines = reactor("schedules").stdout.splitlines()
    assert [line.split() for line in lines if line.startswith("nightly")] == [
        ["nightly", "report", "0", "3", "*", "*", "*", "Europe/Zurich", "enabled"]
    ]
    assert any(line.split()[:5] == ["often", "work", "every", "1", "min"] for line in lines)
    assert not set("".join(lines)) & set("\x1b\x07\u202e\u009b\r")
    assert reactor("schedules", "disable", "nightly").stdout == "Schedule nightly is disabled.\n"
    assert reactor("schedules", "disable", "nightly").stdout == "Schedule nightly is already disabled.\n"
    assert "disabled" in next(line for line in reactor("schedules").stdout.splitlines() if "nightly" in line)
    done = json.loads(reactor("schedules", "run", "nightly", "--json").stdout)
    assert await connection.fetchval("select job_type from reactor.jobs where id = $1", done["id"]) == "report"
    assert reactor("schedules", "enable", "nightly").stdout == "Schedule nightly is enabled.\n"
    assert reactor("schedules", "remove", "nightly").returncode == 0
    done = reactor("schedules", "run", "nightly")
    assert (done.returncode, done.stdout) == (1, "")
    assert "There is no schedule 'nightly'" in done.stderr
    listed = json.loads(reactor("schedules", "--json").stdout)
    assert {schedule["name"] for schedule in listed} >= {"often"}
    assert await connection.fetchval("select count(*) from reactor.audit") == 6


async def test_prune_counts_and_removes_pipelines(reactor: Reactor, connection: Connection) -> None:
    """J9"""
    await connection.execute(
        "insert into reactor.jobs (job_type, state, created_at, finished_at) "
        "select 'work', 'completed', t, t from (values (now() - interval '40 days'), (now())) v (t)"
    )
    assert reactor("prune").returncode == 2, "--days is required"
    tried = reactor("prune", "--days=30", "--dry-run")
    assert tried.stdout == "1 pipeline with 1 job would be removed.\n"
    assert reactor("prune", "--days=30", "--state=failed").stdout == "0 pipelines with 0 jobs removed.\n"
    done = reactor("prune", "--days=30", "--archive", "--json")
    assert json.loads(done.stdout) == {"pipelines": 1, "jobs": 1, "dry_run": False}
    assert await connection.fetchval("select count(*) from reactor.jobs") == 1
    assert "Every day" in reactor("prune", "--days=30", "--every=day").stdout
    assert await connection.fetchval("select payload->>'days' from reactor.schedules") == "30.0"
    assert reactor("prune", "--days=30", "--every=day", "--dry-run").returncode == 2
    notes = await connection.fetch("select what from reactor.audit order by id")
    assert [note["what"] for note in notes] == ["prune", "prune", "prune every"]
