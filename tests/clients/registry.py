"""The clients that are known to work: one program per library, and what each of them can't do by nature."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "clients"
SCENARIOS = HERE / "scenarios.json"


@dataclass(frozen=True)
class Client:
    """A library, and the command that runs its program; the suite adds the path of the scenario file."""

    name: str
    language: str
    command: tuple[str, ...]
    """Started in tests/clients/<language>. {build} stands for build/clients/<language>."""
    skips: Mapping[str, str] = field(default_factory=dict)
    """By scenario: what the library can't do, and why."""
    locked: bool = False
    """Its library is in requirements-dev.lock, so that `make test` runs it."""
    needs: tuple[str, str] | None = None
    """A file of build/clients/<language> that is not there on every machine, and what to say then."""

    @property
    def source(self) -> Path:
        return HERE / self.language

    @property
    def build(self) -> Path:
        return BUILD / self.language

    @property
    def arguments(self) -> list[str]:
        return [word.replace("{build}", str(self.build)) for word in self.command]

    def missing(self) -> str | None:
        """What has to be installed before it can run."""
        if not self.locked and not (self.build / ".made").exists():
            return f"{self.language}: its tools are not installed: make clients"
        if not shutil.which(self.arguments[0], path=f"{self.source}{os.pathsep}{os.environ['PATH']}"):
            return f"there is no {self.arguments[0]}: make clients"
        if self.needs and not (self.build / self.needs[0]).exists():
            return self.needs[1]
        return None


# The id comes with the insert.
RETURNED = {"last_id": "the insert itself returns the id"}
BUILT_PYTHON = "{build}/bin/python"
PRISMA = (
    "node_modules/.prisma/client",
    "Prisma's client is not generated: that needs Node 20 (rm -r build/clients/node)",
)

CLIENTS = [
    Client("asyncpg", "python", (sys.executable, "with_asyncpg.py"), RETURNED, locked=True),
    Client("psycopg 3", "python", (sys.executable, "with_psycopg.py"), RETURNED, locked=True),
    Client("psycopg2", "python", (BUILT_PYTHON, "with_psycopg2.py"), RETURNED),
    Client("SQLAlchemy on psycopg", "python", (sys.executable, "with_sqlalchemy.py"), RETURNED, locked=True),
    Client("SQLAlchemy on asyncpg", "python", (sys.executable, "with_async_sqlalchemy.py"), RETURNED, locked=True),
    Client("SQLAlchemy automap", "python", (sys.executable, "with_automap.py"), RETURNED, locked=True),
    Client("Django", "python", (BUILT_PYTHON, "with_django.py"), RETURNED),
    Client("node-postgres", "node", ("node", "pg.mjs"), RETURNED),
    Client("postgres.js", "node", ("node", "postgres_js.mjs"), RETURNED),
    Client("Knex", "node", ("node", "knex.mjs"), RETURNED),
    Client("Sequelize", "node", ("node", "sequelize.mjs"), RETURNED),
    Client("TypeORM", "node", ("node", "typeorm.mjs"), RETURNED),
    Client("Drizzle", "node", ("node", "drizzle.mjs"), RETURNED),
    Client("Prisma", "node", ("node", "prisma.mjs"), RETURNED, needs=PRISMA),
    Client("JDBC", "java", ("java", "-cp", "{build}:{build}/*", "Jdbc")),
    Client("EclipseLink (JPA)", "java", ("java", "-cp", "{build}:.:{build}/*", "Jpa")),
    Client("pgx", "go", ("{build}/pgx",)),
    Client("lib/pq", "go", ("{build}/pq",)),
    Client("ruby-pg", "ruby", ("ruby", "pg.rb")),
    Client("Active Record", "ruby", ("ruby", "active_record.rb")),
    Client("PDO", "php", ("php", "pdo.php")),
    Client("Eloquent", "php", ("php", "eloquent.php")),
    Client("Doctrine", "php", ("php", "doctrine.php")),
    Client("DBI", "perl", ("perl", "dbi.pl")),
]


def selected(wish: str) -> list[Client]:
    """`all`; names or languages, separated by commas; or, without a wish, those that need nothing installed."""
    if wish == "all":
        return CLIENTS
    if not wish:
        return [client for client in CLIENTS if client.locked]
    words = [word.strip() for word in wish.split(",")]
    known = {word for client in CLIENTS for word in (client.name, client.language)} | {"streams", "generated"}
    if unknown := [word for word in words if word not in known]:
        raise ValueError(f"there is no client {', '.join(unknown)}: only {', '.join(sorted(known))}")
    return [client for client in CLIENTS if client.name in words or client.language in words]
