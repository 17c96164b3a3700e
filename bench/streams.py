"""Measures thousands of progress streams on one process: the latency of changes, and the memory per stream.

Runs reactor's server, then the same feed behind sse-starlette's response. Latency is from the commit to the arrival of
the event in the client, which shares the machine's cores with the server and PostgreSQL.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

from reactor.database.connection import Connection, connect
from reactor.testing import Databases, server_for_tests

PEER = Path(__file__).parent / "sse_starlette_peer.py"


class Client:
    """A minimal client that only counts events and records when they arrived."""

    def __init__(self, pipeline_id: UUID) -> None:
        self.pipeline_id = pipeline_id
        self.events = 0
        self.arrived_at = 0.0
        self.ended = asyncio.Event()
        self._writer: asyncio.StreamWriter

    async def open(self, port: int) -> None:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        self._writer.write(f"GET /v1/pipelines/{self.pipeline_id}/events HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(65_536):
            if count := chunk.count(b"event: pipeline\n") + chunk.count(b"event: snapshot\n"):
                self.events += count
                self.arrived_at = time.perf_counter()
        self.ended.set()

    def close(self) -> None:
        self._reading.cancel()
        self._writer.transport.abort()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def memory_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def is_answering(port: int) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


async def make_pipelines(connection: Connection, count: int, jobs: int) -> list[UUID]:
    pipelines = [uuid4() for _ in range(count)]
    await connection.execute(
        "insert into reactor.jobs (job_type, pipeline_id) select 'unhandled', p from unnest($1::uuid[]) p,"
        " generate_series(1, $2)",
        pipelines,
        jobs,
    )
    return pipelines


async def measure(url: str, command: Callable[[int], list[str]], streams: int, rounds: int) -> dict[str, float]:
    port = free_port()
    environment = {**os.environ, "REACTOR_DATABASE_URL": url, "REACTOR_MAX_STREAMS_PER_TOKEN": "100000"}
    server = await asyncio.create_subprocess_exec(
        *command(port), env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    clients: list[Client] = []
    try:
        await is_answering(port)
        async with connect(url, name="bench") as connection:
            pipelines = await make_pipelines(connection, max(1, streams // 40), 20)
            warm = [Client(pipelines[0]) for _ in range(20)]
            await asyncio.gather(*(client.open(port) for client in warm))
            await until(lambda: all(client.events for client in warm))
            await asyncio.sleep(1)
            empty = memory_kb(server.pid)
            clients = [Client(pipelines[number % len(pipelines)]) for number in range(streams)]
            for start in range(0, streams, 200):
                await asyncio.gather(*(client.open(port) for client in clients[start : start + 200]))
                await until(lambda: all(client.events for client in clients[: start + 200]))  # noqa: B023
            await asyncio.sleep(2)
            figures = {"kb_per_stream": (memory_kb(server.pid) - empty) / streams}
            figures |= await latencies(connection, pipelines, clients, rounds)
            for client in warm:
                client.close()
        for client in clients[200:]:
            client.close()
        await asyncio.sleep(1)
        started = time.perf_counter()
        server.send_signal(signal.SIGTERM)
        await asyncio.gather(*(asyncio.wait_for(client.ended.wait(), 40) for client in clients[:200]))
        figures["end_seconds"] = time.perf_counter() - started
        return figures
    finally:
        for client in clients:
            client.close()
        with contextlib.suppress(ProcessLookupError):
            server.kill()
        await server.wait()


async def latencies(
    connection: Connection, pipelines: list[UUID], clients: list[Client], rounds: int
) -> dict[str, float]:
    took: list[float] = []
    for _ in range(rounds):
        chosen = random.choice(pipelines)
        watching = [client for client in clients if client.pipeline_id == chosen]
        before = [client.events for client in watching]
        await connection.execute(
            "update reactor.jobs set attempts = attempts + 1 where id = (select min(id) from reactor.jobs where"
            " pipeline_id = $1)",
            chosen,
        )
        committed = time.perf_counter()
        await until(lambda: all(c.events > b for c, b in zip(watching, before, strict=True)))  # noqa: B023
        took += [client.arrived_at - committed for client in watching]
        await asyncio.sleep(0.2)
    all_before = [client.events for client in clients]
    await connection.execute(
        "update reactor.jobs set attempts = attempts + 1"
        " where id in (select min(id) from reactor.jobs group by pipeline_id)"
    )
    committed = time.perf_counter()
    await until(lambda: all(c.events > b for c, b in zip(clients, all_before, strict=True)))
    arrivals = [client.arrived_at - committed for client in clients]
    return {
        "p50_ms": 1000 * statistics.median(took),
        "p99_ms": 1000 * statistics.quantiles(took, n=100)[98],
        "all_at_once_p99_ms": 1000 * statistics.quantiles(arrivals, n=100)[98],
    }


async def compare(url: str, streams: int, rounds: int) -> dict[str, dict[str, float]]:
    contestants: dict[str, Callable[[int], list[str]]] = {
        "reactor": lambda port: [sys.executable, "-m", "reactor", "serve", "--port", str(port)],
        "sse-starlette": lambda port: [sys.executable, str(PEER), str(port), url],
    }
    return {name: await measure(url, command, streams, rounds) for name, command in contestants.items()}


async def main(arguments: argparse.Namespace, server: str) -> None:
    databases = Databases(server)
    await databases.prepare()
    try:
        async with databases.clone() as url:
            table = await compare(url, arguments.streams, arguments.rounds)
    finally:
        await databases.remove()
    if arguments.json:
        print(json.dumps(table))
        return
    print(f"{arguments.streams} streams on one process")
    for figure in next(iter(table.values())):
        ours, theirs = (row[figure] for row in table.values())
        print(f"  {figure:20} {ours:10.1f}   sse-starlette {theirs:10.1f}   ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--server", help="URL of the server (default: a new embedded one)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    # Each stream needs a file descriptor, here and in the server.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with server_for_tests(given.server, None) as address:
        asyncio.run(main(given, address))
