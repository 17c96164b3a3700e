"""The results of model-days, with positions and trades."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "model_days",
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("date", sa.Date(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("cash", sa.Numeric(precision=16, scale=2), nullable=False),
        sa.Column("value", sa.Numeric(precision=16, scale=2), nullable=False),
        sa.Column("day_return", sa.Numeric(precision=12, scale=8), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["reactor.jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "date", "model"),
        schema="simulation",
    )
    op.create_index(op.f("model_days_date"), "model_days", ["date"], unique=False, schema="simulation")
    op.create_index(op.f("model_days_model"), "model_days", ["model"], unique=False, schema="simulation")
    op.create_table(
        "positions",
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("date", sa.Date(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("symbol", sa.Text(), nullable=False),
        sa.Column("quantity", sa.BigInteger(), nullable=False),
        sa.Column("price", sa.Numeric(precision=16, scale=2), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id", "date", "model"],
            ["simulation.model_days.job_id", "simulation.model_days.date", "simulation.model_days.model"],
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job_id", "date", "model", "symbol"),
        schema="simulation",
    )
    op.create_table(
        "trades",
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("date", sa.Date(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("symbol", sa.Text(), nullable=False),
        sa.Column("quantity", sa.BigInteger(), nullable=False),
        sa.Column("price", sa.Numeric(precision=16, scale=2), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id", "date", "model"],
            ["simulation.model_days.job_id", "simulation.model_days.date", "simulation.model_days.model"],
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job_id", "date", "model", "number"),
        schema="simulation",
    )


def downgrade() -> None:
    op.drop_table("trades", schema="simulation")
    op.drop_table("positions", schema="simulation")
    op.drop_index(op.f("model_days_model"), table_name="model_days", schema="simulation")
    op.drop_index(op.f("model_days_date"), table_name="model_days", schema="simulation")
    op.drop_table("model_days", schema="simulation")
