"""J12: the turnover of a model-day. It has a default, so that earlier rows, and pods of the earlier version, go on."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    turnover = sa.Column("turnover", sa.Numeric(precision=16, scale=2), server_default="0", nullable=False)
    op.add_column("model_days", turnover, schema="simulation")


def downgrade() -> None:
    op.drop_column("model_days", "turnover", schema="simulation")
