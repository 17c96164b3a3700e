"""The system account that runs the embedded server: ours, or `reactor-pg` for root, since PostgreSQL refuses root."""

import fcntl
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ACCOUNT_FOR_ROOT = "reactor-pg"


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int

    @property
    def is_ours(self) -> bool:
        return self.uid == os.geteuid()

    def subprocess_options(self) -> dict[str, Any]:
        return {} if self.is_ours else {"user": self.uid, "group": self.gid, "extra_groups": []}

    def take_ownership(self, path: Path) -> None:
        if not self.is_ours:
            os.chown(path, self.uid, self.gid)


def server_account(name_for_root: str = _ACCOUNT_FOR_ROOT) -> Account:
    """Creates the account for root if needed. Raises OSError if that fails."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    # useradd looks for the name before it takes its lock: of two at the same time, the second one replaces the account
    # of the first, under another uid.
    with _lock(Path("/etc")):
        try:
            entry = pwd.getpwnam(name_for_root)
        except KeyError:
            _create(name_for_root)
            entry = pwd.getpwnam(name_for_root)
    return Account(entry.pw_uid, entry.pw_gid)


def can_enter(account: Account, folder: Path) -> bool:
    """Whether the account can read `folder` and enter all of its parents. Access control lists are ignored."""
    folder = folder.resolve()
    return account.is_ours or (
        _allowed(account, folder, stat.S_IROTH | stat.S_IXOTH)
        and all(_allowed(account, parent, stat.S_IXOTH) for parent in folder.parents)
    )


def _allowed(account: Account, folder: Path, bits_for_others: int) -> bool:
    status = folder.stat()
    shift = 6 if status.st_uid == account.uid else 3 if status.st_gid == account.gid else 0
    return (status.st_mode >> shift) & bits_for_others == bits_for_others


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Against other processes that do the same. The folder itself is locked, so that no file is left behind."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _create(name: str) -> None:
    program = shutil.which("useradd") or shutil.which("useradd", path="/usr/sbin:/sbin")
    if program is None:
        raise OSError(
            f"PostgreSQL does not run as root, and useradd, which would create the account {name} for it, is missing; "
            "create that account, or run this as an ordinary user"
        )
    done = subprocess.run(
        [program, "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", name],
        capture_output=True,
        text=True,
    )
    # 9: it exists, for instance in a directory service that was slow to answer.
    if done.returncode not in (0, 9):
        raise OSError(f"PostgreSQL does not run as root, and creating the account {name} failed: {done.stderr.strip()}")
