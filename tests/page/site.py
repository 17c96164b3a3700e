"""For the tests of the page: a server and a pod as processes, a browser tab that reports errors, another site."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

from playwright.async_api import Page

from reactor.client.submit import NewJob, submit_many
from reactor.database.connection import connect
from reactor.testing import Databases
from tests.support.until import until

HERE = Path(__file__).parent
Edges = Sequence[tuple[int, int]]


class Site:
    """A server and a pod on one database, as processes. The server can be stopped and started again at its address."""

    def __init__(self, url: str, folder: Path, **settings: str) -> None:
        self.url = url
        self._folder = folder
        self._settings = {f"REACTOR_{name.upper()}": value for name, value in settings.items()}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._port = "0"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    @property
    def log(self) -> str:
        return "".join(log.read_text() for log in self._folder.glob("*.log"))

    async def serve(self) -> None:
        log = await self._start("serve", "serve", "--port", self._port, expects="http://")
        found = re.findall(r"http://127\.0\.0\.1:(\d+)", log)
        self._port = found[-1]

    async def work(self) -> None:
        await self._start("pod", "worker", "--app", "page_handlers", expects="worker started")

    def stop(self, name: str, number: int = signal.SIGTERM) -> None:
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(20)

    @contextmanager
    def port_kept(self) -> Iterator[None]:
        """Keeps other processes from getting the port of a server that was stopped."""
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", int(self._port)))
            yield

    def end(self) -> None:
        for name in list(self._processes):
            self.stop(name)

    async def submit(self, jobs: Sequence[NewJob], edges: Edges = ()) -> str:
        """Returns the pipeline's id. `edges`: (position of a job, position of the job that it depends on)."""
        pipeline = uuid4()
        async with connect(self.url, name="test") as connection, connection.transaction():
            made = await submit_many(connection, [replace(job, pipeline_id=pipeline) for job in jobs])
            await connection.execute(
                "insert into reactor.dependencies (job_id, depends_on) "
                "select * from unnest($1::bigint[], $2::bigint[])",
                [made[job].id for job, _ in edges],
                [made[dependency].id for _, dependency in edges],
            )
        return str(pipeline)

    async def fetch(self, query: str, *arguments: object) -> Any:
        async with connect(self.url, name="test") as connection:
            return await connection.fetchval(query, *arguments)

    async def _start(self, name: str, *arguments: str, expects: str) -> str:
        outside = {key: value for key, value in os.environ.items() if not key.startswith("REACTOR_")}
        inside = {"REACTOR_DATABASE_URL": self.url, "REACTOR_POD_ID": "pod-1"}
        log = self._folder / f"{name}-{time.monotonic_ns()}.log"
        with log.open("w") as output:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "reactor", *arguments],
                cwd=HERE,
                env=outside | inside | self._settings,
                stdout=output,
                stderr=output,
            )

        def is_logged() -> bool:
            assert self._processes[name].poll() is None, log.read_text()
            return expects in log.read_text()

        await until(is_logged, within_seconds=60)
        return log.read_text()


@asynccontextmanager
async def site_on(databases: Databases, folder: Path, *, works: bool, **settings: str) -> AsyncIterator[Site]:
    async with databases.clone() as url:
        site = Site(url, folder, **settings)
        try:
            await asyncio.gather(site.serve(), *([site.work()] if works else []))
            yield site
        finally:
            site.end()


class Tab:
    """A browser page. Errors in its console and violations of its content security policy fail the test."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))
        page.on("console", lambda message: self._on_console(message.type, message.text))

    def _on_console(self, kind: str, text: str) -> None:
        # Tests stop servers and let them refuse: the browser reports that too, and it is not an error of the page.
        if kind in ("error", "warning") and "ERR_" not in text and "responded with a status" not in text:
            self.errors.append(f"{kind}: {text}")

    async def open(self, query: str = "") -> "Tab":
        await self.page.goto(self.base + query)
        return self

    @property
    def connection(self) -> Any:
        return self.page.locator(".connection")

    @property
    def state(self) -> Any:
        return self.page.locator(".heading .badge")

    def node(self, name: str) -> Any:
        return self.page.locator(".node", has_text=name)


WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => {
  window.violations.push(`${violatedDirective} ${blockedURI}`);
});
"""


class Host:
    """Another site, on an origin of its own."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        pages = self.pages

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = pages.get(self.path, "").encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        self.address = f"{self.origin}/"

    def __enter__(self) -> "Host":
        self._thread = Thread(target=self.server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()
