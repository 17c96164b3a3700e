"""The system account that the embedded server runs as: ours, or, since PostgreSQL refuses root, one made for it."""

import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOTS_SERVANT = "reactor-pg"


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int

    @property
    def is_ours(self) -> bool:
        return self.uid == os.geteuid()

    def subprocess_options(self) -> dict[str, Any]:
        return {} if self.is_ours else {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        if not self.is_ours:
            os.chown(path, self.uid, self.gid)


def server_account() -> Account:
    """Raises OSError when root has no account to lend and can't make one."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    try:
        entry = pwd.getpwnam(_ROOTS_SERVANT)
    except KeyError:
        _create(_ROOTS_SERVANT)
        entry = pwd.getpwnam(_ROOTS_SERVANT)
    return Account(entry.pw_uid, entry.pw_gid)


def can_enter(account: Account, folder: Path) -> bool:
    """May the account read `folder` and pass through everything above it? (Access lists are not looked at.)"""
    folder = folder.resolve()
    return account.is_ours or (
        _allowed(account, folder, stat.S_IROTH | stat.S_IXOTH)
        and all(_allowed(account, parent, stat.S_IXOTH) for parent in folder.parents)
    )


def _allowed(account: Account, folder: Path, bits_for_others: int) -> bool:
    status = folder.stat()
    shift = 6 if status.st_uid == account.uid else 3 if status.st_gid == account.gid else 0
    return (status.st_mode >> shift) & bits_for_others == bits_for_others


def _create(name: str) -> None:
    program = shutil.which("useradd") or shutil.which("useradd", path="/usr/sbin:/sbin")
    if program is None:
        raise OSError(
            f"PostgreSQL does not run as root, and there is no useradd to make the account {name} for it; "
            "make that account, or run this as an ordinary user"
        )
    made = subprocess.run(
        [program, "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", name],
        capture_output=True,
        text=True,
    )
    # 9: another process made it a moment ago.
    if made.returncode not in (0, 9):
        raise OSError(f"PostgreSQL does not run as root, and the account {name} can't be made: {made.stderr.strip()}")
