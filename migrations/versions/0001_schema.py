"""The schema itself."""

from pathlib import Path

from reactor.migrate import execute_frozen

revision = "0001"
down_revision = None


def upgrade() -> None:
    execute_frozen(Path(__file__).with_suffix(".up.sql"))


def downgrade() -> None:
    execute_frozen(Path(__file__).with_suffix(".down.sql"))
