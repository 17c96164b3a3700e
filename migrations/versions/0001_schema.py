"""The whole schema, in one transaction."""

from collections.abc import Callable
from pathlib import Path

revision = "0001"
down_revision = None

FROZEN = Path(__file__).with_name("0001")


def upgrade(execute_frozen: Callable[[Path], None]) -> None:
    execute_frozen(FROZEN / "schema.sql")


def downgrade(execute_frozen: Callable[[Path], None]) -> None:
    execute_frozen(FROZEN / "down.sql")
