"""The whole schema: tables, triggers, claim and submit, in one transaction."""

from pathlib import Path

from reactor.database.migrate import execute_frozen

revision = "0001"
down_revision = None

PARTS = [
    "types",
    "tables",
    "bells",
    "changed",
    "dependencies",
    "scopes",
    "consequences",
    "claim",
    "settle",
    "submit",
    "operate",
    "pipelines",
    "workload",
    "privileges",
]


def upgrade() -> None:
    for part in PARTS:
        execute_frozen(Path(__file__).parent / "0001" / f"{part}.sql")


def downgrade() -> None:
    execute_frozen(Path(__file__).parent / "0001" / "down.sql")
