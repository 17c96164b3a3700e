"""Starts the embedded server, shares it, and stops it after its last user.

Every user of a server holds the writing end of a named pipe in its folder; the kernel closes it however the user ends.
Nobody holds it any more = the server is not needed. Whoever starts or stops the server does so under one file lock,
and a small keeper process (keeper.py) waits for the pipe's end, so that even `kill -9` of the last user leaves nothing
running.
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

# What a socket's path may have on Linux (108 with the closing NUL) and macOS (104), less its file name.
_LONGEST_SOCKET_FOLDER = 103 - len("/.s.PGSQL.5432")
_START_SECONDS = 60


def default_folder() -> Path:
    """One per user and machine: every checkout and every process finds the same server."""
    if os.geteuid() == 0:
        return Path("/var/lib/reactor")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "reactor"


def start_embedded(
    folder: Path | None = None, *, version: int, options: Mapping[str, str] | None = None
) -> "EmbeddedServer":
    """Joins the server of this folder and version, starting it if it is not running (then with these options)."""
    home = (folder or default_folder()).absolute() / f"postgresql-{version}"
    try:
        server = EmbeddedServer(home, server_account(), version)
        server.join(options or {})
    except OSError as error:
        raise EmbeddedFailed(home, error.strerror or str(error)) from error
    return server


class EmbeddedServer:
    """A share in a running server; `close()` gives it back, and the last one stops the server."""

    def __init__(self, home: Path, account: Account, version: int) -> None:
        self.home = home
        self._account = account
        self._version = version
        self._data = home / "data"
        self._lock = home / "lock"
        self._pipe = home / "users"
        self._log = home / "log" / "server.log"
        self._share: int | None = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(self.socket_folder), safe='/')}"

    @property
    def psql(self) -> Path:
        return find_programs(self._version) / "psql"

    @property
    def socket_folder(self) -> Path:
        inside = self.home / "socket"
        # To clients a comma stands between two hosts.
        if len(os.fsencode(inside)) <= _LONGEST_SOCKET_FOLDER and "," not in str(inside):
            return inside
        short = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        return Path("/tmp") / f"reactor-{os.geteuid()}-{short}"  # noqa: S108 (_own_folder makes and checks it)

    def is_running(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket_folder / ".s.PGSQL.5432")) == 0

    def join(self, options: Mapping[str, str]) -> None:
        self._make_home()
        with self._locked():
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self._pipe, 0o600)
            # Opened for both, because opening for writing alone would wait for a reader.
            self._share = os.open(self._pipe, os.O_RDWR | os.O_CLOEXEC)
            try:
                if not self.is_running():
                    self._start(options)
            except BaseException:
                os.close(self._share)
                self._share = None
                raise

    def close(self) -> None:
        if self._share is not None:
            os.close(self._share)
            self._share = None
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
        self._own_folder(self.home / "log")
        self._own_folder(self.socket_folder)
        if not can_enter(self._account, self.home / "log"):
            raise EmbeddedFailed(self.home, "the account that runs the server may not enter that folder")
        if not self._data.exists():
            self._create_data(durable=options.get("fsync") != "off")
        self._configure(options)
        self._run("pg_ctl", "start", "-D", str(self._data), "-l", str(self._log), "-w", "-t", str(_START_SECONDS))
        self._start_keeper()

    def _make_home(self) -> None:
        for folder in (self.home.parent, self.home):
            if not folder.exists():
                folder.mkdir(parents=True, exist_ok=True)
                if not self._account.is_ours:
                    folder.chmod(0o711)

    def _create_data(self, *, durable: bool) -> None:
        """Made under another name first, so that an interrupted initdb is never taken for data."""
        half = self.home / "data.new"
        shutil.rmtree(half, ignore_errors=True)
        self._own_folder(half)
        form = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]
        self._run("initdb", "-D", str(half), *form, *([] if durable else ["--no-sync"]))
        with (half / "postgresql.conf").open("a") as conf:
            conf.write("include 'reactor.conf'\n")
        half.rename(self._data)

    def _configure(self, options: Mapping[str, str]) -> None:
        """Reached through a socket in a folder that only its owner may enter: that is the password."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.socket_folder),
            "max_connections": "200",
            **options,
        }
        lines = [f"{name} = '{value.replace(chr(39), chr(39) * 2)}'\n" for name, value in settings.items()]
        conf = self._data / "reactor.conf"
        conf.write_text("".join(lines))
        self._account.own(conf)

    def _start_keeper(self) -> None:
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

    def _own_folder(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (os.geteuid(), self._account.uid):
            raise EmbeddedFailed(self.home, f"{folder} belongs to somebody else")
        self._account.own(folder)

    def _run(self, program: str, *arguments: str) -> None:
        programs = programs_for(self._account, self._version, self.home.parent)
        # PGPORT, PGDATA and their like mean some other server.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            # Not a pipe: the server keeps its end of one open, and the reader would wait for the server's end.
            done = subprocess.run(
                [programs / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment | {"LC_ALL": "C"},
                cwd="/",
                **self._account.subprocess_options(),
            )
            if done.returncode == 0:
                return
            said.seek(0)
            words = said.read().strip()
        if program == "pg_ctl" and self._log.exists():
            words += "\n" + "\n".join(self._log.read_text(errors="replace").splitlines()[-10:])
        raise EmbeddedFailed(self.home, f"{program} failed", words)
