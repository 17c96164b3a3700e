"""Starts the embedded server, shares it between processes, and stops it after the last of them.

Each user of the server keeps the writing end of a named pipe in its folder open; the kernel closes it when the process
ends in any way. The server is unused when no process holds the pipe. Starting and stopping happen under a file lock. A
small process (stop_after_last.py) waits for the end of the pipe, so that the server also stops after a `kill -9` of its
last user.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from reactor.embedded.account import Account, can_enter, server_account
from reactor.embedded.binaries import find_programs, programs_for
from reactor.errors import EmbeddedFailed

# The maximum length of a socket path on macOS (104 with the final NUL; Linux: 108), less the file name.
_MAX_SOCKET_FOLDER_LENGTH = 103 - len("/.s.PGSQL.5432")
_START_SECONDS = 60


def default_folder() -> Path:
    """One folder per user and machine, so that all checkouts and processes share one server."""
    if os.geteuid() == 0:
        return Path("/var/lib/reactor")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "reactor"


def start_embedded(
    folder: Path | None = None, *, version: int, options: Mapping[str, str] | None = None
) -> "EmbeddedServer":
    """Connects to the server of this folder and version. Starts it with `options` if it is not running."""
    home = (folder or default_folder()).absolute() / f"postgresql-{version}"
    try:
        server = EmbeddedServer(home, server_account(), version)
        server.join(options or {})
    except OSError as error:
        raise EmbeddedFailed(home, error.strerror or str(error)) from error
    return server


class EmbeddedServer:
    """A running server that this process uses until `close()`. The last user stops it."""

    def __init__(self, home: Path, account: Account, version: int) -> None:
        self.home = home
        self._account = account
        self._version = version
        self._data = home / "data"
        self._lock = home / "lock"
        self._pipe = home / "users"
        self._log = home / "log" / "server.log"
        self._pipe_end: int | None = None

    def url(self, database: str = "postgres") -> str:
        """Complete: PGPORT, PGSSLMODE and similar variables are about other servers."""
        folder = quote(str(self.socket_folder), safe="/")
        return f"postgresql://postgres@/{database}?host={folder}&port=5432&sslmode=disable&target_session_attrs=any"

    @property
    def psql(self) -> Path:
        return find_programs(self._version) / "psql"

    @property
    def socket_folder(self) -> Path:
        inside = self.home / "socket"
        # A comma would separate two hosts in the URL.
        if len(os.fsencode(inside)) <= _MAX_SOCKET_FOLDER_LENGTH and "," not in str(inside):
            return inside
        short = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        return Path("/tmp") / f"reactor-{os.geteuid()}-{short}"  # noqa: S108 (_create_private_folder creates and checks it)

    def is_running(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket_folder / ".s.PGSQL.5432")) == 0

    def join(self, options: Mapping[str, str]) -> None:
        self._make_home()
        with self._locked():
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self._pipe, 0o600)
            # Opened for reading too, because opening for writing only would block until there is a reader.
            self._pipe_end = os.open(self._pipe, os.O_RDWR | os.O_CLOEXEC)
            try:
                if not self.is_running():
                    self._start(options)
            except BaseException:
                os.close(self._pipe_end)
                self._pipe_end = None
                raise

    def close(self) -> None:
        if self._pipe_end is not None:
            os.close(self._pipe_end)
            self._pipe_end = None
            self.stop_if_unused()

    def stop_if_unused(self) -> None:
        with self._locked():
            if not self._in_use() and self.is_running():
                self._run("pg_ctl", "stop", "-D", str(self._data), "-m", "fast", "-w", "-t", str(_START_SECONDS))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, options: Mapping[str, str]) -> None:
        self._create_private_folder(self.home / "log")
        self._create_private_folder(self.socket_folder)
        if not can_enter(self._account, self.home / "log"):
            raise EmbeddedFailed(self.home, "the account that runs the server may not enter that folder")
        if not self._data.exists():
            self._create_data(durable=options.get("fsync") != "off")
        self._configure(options)
        self._run("pg_ctl", "start", "-D", str(self._data), "-l", str(self._log), "-w", "-t", str(_START_SECONDS))
        self._start_watcher()

    def _make_home(self) -> None:
        for folder in (self.home.parent, self.home):
            if not folder.exists():
                folder.mkdir(parents=True, exist_ok=True)
                if not self._account.is_ours:
                    folder.chmod(0o711)

    def _create_data(self, *, durable: bool) -> None:
        """Creates the data under a temporary name, so that an interrupted initdb is never mistaken for data."""
        unfinished = self.home / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        self._create_private_folder(unfinished)
        form = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]
        self._run("initdb", "-D", str(unfinished), *form, *([] if durable else ["--no-sync"]))
        with (unfinished / "postgresql.conf").open("a") as conf:
            conf.write("include 'reactor.conf'\n")
        unfinished.rename(self._data)

    def _configure(self, options: Mapping[str, str]) -> None:
        """Access is restricted by the permissions of the socket's folder instead of a password."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.socket_folder),
            "max_connections": "200",
            **options,
        }
        lines = [f"{name} = '{value.replace(chr(39), chr(39) * 2)}'\n" for name, value in settings.items()]
        conf = self._data / "reactor.conf"
        conf.write_text("".join(lines))
        self._account.take_ownership(conf)

    def _start_watcher(self) -> None:
        reader = os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.set_blocking(reader, True)
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "reactor.embedded.stop_after_last",
                    str(self.home),
                    str(self._version),
                    str(reader),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                pass_fds=[reader],
                check=True,
            )
        finally:
            os.close(reader)

    def _in_use(self) -> bool:
        reader = os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(reader, 1) != b""
        except BlockingIOError:
            return True
        finally:
            os.close(reader)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _create_private_folder(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (os.geteuid(), self._account.uid):
            raise EmbeddedFailed(self.home, f"{folder} belongs to another user")
        self._account.take_ownership(folder)

    def _run(self, program: str, *arguments: str) -> None:
        programs = programs_for(self._account, self._version, self.home.parent)
        # PGPORT, PGDATA and similar variables refer to other servers.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            # A file rather than a pipe: the server would keep a pipe open, and reading it would not end.
            done = subprocess.run(
                [programs / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment | {"LC_ALL": "C"},
                cwd="/",
                **self._account.subprocess_options(),
            )
            if done.returncode == 0:
                return
            output.seek(0)
            text = output.read().strip()
        if program == "pg_ctl" and self._log.exists():
            text += "\n" + "\n".join(self._log.read_text(errors="replace").splitlines()[-10:])
        raise EmbeddedFailed(self.home, f"{program} failed", text)
