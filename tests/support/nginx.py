"""nginx in front of a server, configured as little as possible."""

import asyncio
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.until import until

# `Host` identifies the POSTs of the server's own page: docs/access.md. Nothing is said about buffering.
_CONFIG = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx-errors.log;
events {{}}
http {{
  access_log {folder}/nginx-access.log;
  client_body_temp_path {folder}; proxy_temp_path {folder};
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://{upstream}; proxy_set_header Host $http_host; }}
  }}
}}
"""


class Nginx:
    def __init__(self, folder: Path, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self._log = folder / "nginx-access.log"

    def statuses(self, path: str) -> list[int]:
        """Of the finished requests whose path begins like this."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [int(line.split('" ')[1].split()[0]) for line in lines if f"GET {path}" in line]


@asynccontextmanager
async def nginx_for(upstream: str, folder: Path) -> AsyncIterator[Nginx]:
    """`upstream`: host:port"""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/opt/homebrew/bin")
    if not program:
        pytest.skip("there is no nginx: apt-get install nginx-light (or brew); `make clients` installs the rest")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "nginx.conf"
    config.write_text(_CONFIG.format(folder=folder, port=port, upstream=upstream))
    process = subprocess.Popen([program, "-p", folder, "-c", config, "-e", folder / "nginx-errors.log"])

    async def listens() -> bool:
        assert process.poll() is None, (folder / "nginx-errors.log").read_text()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await until(listens)
        yield Nginx(folder, port)
    finally:
        process.terminate()
        process.wait()
