"""${message}"""

from pathlib import Path

from reactor.database.migrate import execute_frozen

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    execute_frozen(Path(__file__).with_suffix(".up.sql"))


def downgrade() -> None:
    execute_frozen(Path(__file__).with_suffix(".down.sql"))
