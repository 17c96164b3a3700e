"""Freezes `sql/schema` into a revision.

`make migration` rewrites the unreleased 0001, `make migration NAME=…` creates a new revision. Each revision's folder
has `schema.sha256`, the checksums of sql/schema at that time, by which the next revision knows what changed.
"""

import hashlib
import re
import shutil
import sys
from pathlib import Path

MIGRATIONS = Path(__file__).resolve().parent
SCHEMA = MIGRATIONS.parent / "sql" / "schema"
FIRST = "0001"
MANIFEST = "schema.sha256"
# These files only replace what exists; the others create objects that keep data or can't be replaced.
RUNNABLE = ("checks.sql", "functions/", "views/", "privileges.sql")


def order(schema: Path) -> list[str]:
    """The schema's files in the order in which they are applied."""
    return re.findall(r"^\\ir (\S+)$", (schema / "schema.sql").read_text(encoding="utf-8"), re.MULTILINE)


def checksums(schema: Path) -> dict[str, str]:
    return {name: hashlib.sha256((schema / name).read_bytes()).hexdigest() for name in ["schema.sql", *order(schema)]}


def frozen_checksums(revision: Path) -> dict[str, str]:
    lines = (revision / MANIFEST).read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def newest(versions: Path) -> Path:
    return max(folder for folder in versions.iterdir() if folder.is_dir() and folder.name.isdecimal())


def refresh(schema: Path, versions: Path) -> list[str]:
    """Copies the schema into revision 0001. Only before the first release: after it, databases of 0001 exist."""
    if newest(versions).name != FIRST:
        raise SystemExit(
            f"Revision {FIRST} is frozen: {newest(versions).name} follows it. Use `make migration NAME=…`."
        )
    revision = versions / FIRST
    before = frozen_checksums(revision) if (revision / MANIFEST).exists() else {}
    after = checksums(schema)
    for name in before.keys() - after.keys():
        (revision / name).unlink(missing_ok=True)
    for name in after:
        _copy(schema, revision, name)
    _write_manifest(revision, after)
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def create(schema: Path, versions: Path, name: str) -> Path:
    """A new revision with copies of the files that changed since the newest one, for the author to edit."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise SystemExit(f"{name!r} is not a valid name for a revision. Use lower case letters, digits and _.")
    last = newest(versions)
    before, after = frozen_checksums(last), checksums(schema)
    changed = [file for file in order(schema) if before.get(file) != after[file]]
    removed = sorted(before.keys() - after.keys())
    if not changed and not removed:
        raise SystemExit(f"sql/schema has not changed since revision {last.name}.")
    if "privileges.sql" not in changed and any(file.startswith(("checks.sql", "functions/")) for file in changed):
        changed.append("privileges.sql")  # a new function is executable by PUBLIC until it runs
    number = f"{int(last.name) + 1:04}"
    revision = versions / number
    for file in changed:
        _copy(schema, revision, file)
    _write_manifest(revision, after)
    (revision / "up.sql").write_text(_up(number, last.name, changed, removed), encoding="utf-8")
    (revision / "down.sql").write_text(_down(number, last.name), encoding="utf-8")
    script = versions / f"{number}_{name}.py"
    script.write_text(_script(number, last.name, name), encoding="utf-8")
    return script


def _copy(schema: Path, revision: Path, name: str) -> None:
    (revision / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(schema / name, revision / name)


def _write_manifest(revision: Path, digests: dict[str, str]) -> None:
    lines = (f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    (revision / MANIFEST).write_text("".join(lines), encoding="utf-8")


def _up(number: str, last: str, changed: list[str], removed: list[str]) -> str:
    runnable = [file for file in changed if file.startswith(RUNNABLE)]
    to_edit = [file for file in changed if file not in runnable]
    lines = [
        f"-- Revision {number}, generated from what changed in sql/schema since {last}. EDIT IT before you commit.",
        "--",
        "-- The files beside this one are copies of the whole files in sql/schema, a starting point:",
        "-- * checks.sql, functions/, views/ and privileges.sql run as they are, unless a function's parameters or its",
        "--   result or a view's existing columns changed (drop those), or a privilege was taken away (revoke it).",
        "-- * types.sql, sequences.sql, tables/, triggers.sql and policies.sql create what exists already: replace the",
        "--   copy by the statements that lead from the old definition to the new one (alter table, drop trigger …).",
        "-- * Columns are only added, nullable or with a default: tests/schema/test_revisions.py refuses the rest.",
        f"-- * What sql/schema has no longer must be dropped here: {', '.join(removed) or 'no file was removed'}.",
        "--",
        "-- tests/schema/test_schema.py compares the result with sql/schema, and fails until both are equal.",
        "",
        *(f"-- EDIT {file} before you include it:\n-- \\ir {file}" for file in to_edit),
        *(f"\\ir {file}" for file in runnable),
    ]
    return "\n".join(lines) + "\n"


def _down(number: str, last: str) -> str:
    return f"""-- Undoes revision {number}. EDIT IT before you commit. {last} and before have earlier functions.
do $$ begin raise exception 'down.sql of revision {number} is not written yet.'; end $$;
"""


def _script(number: str, last: str, name: str) -> str:
    return f'''"""{name.replace("_", " ").capitalize()}."""

from collections.abc import Callable
from pathlib import Path

revision = "{number}"
down_revision = "{last}"

FROZEN = Path(__file__).with_name("{number}")


def upgrade(execute_frozen: Callable[[Path], None]) -> None:
    execute_frozen(FROZEN / "up.sql")


def downgrade(execute_frozen: Callable[[Path], None]) -> None:
    execute_frozen(FROZEN / "down.sql")
'''


if __name__ == "__main__":
    if name := " ".join(sys.argv[1:]).strip():
        script = create(SCHEMA, MIGRATIONS / "versions", name)
        print(f"Edit {script.with_name(script.name[:4]).relative_to(MIGRATIONS.parent)}/up.sql and down.sql next.")
    else:
        changed = refresh(SCHEMA, MIGRATIONS / "versions")
        print(f"Refreshed revision {FIRST}: {', '.join(changed) or 'nothing changed'}.")
