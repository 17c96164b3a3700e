"""The tables, the modules and their types."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

MODULES = {"energy": ("electricity", "heating"), "travel": ("car", "plane", "train")}


def upgrade() -> None:
    op.create_table(
        "modules", sa.Column("name", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("name"), schema="ingestion"
    )
    op.create_table(
        "rejected_rows",
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "line"),
        schema="ingestion",
    )
    op.create_table(
        "units",
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("code"),
        schema="ingestion",
    )
    op.create_table(
        "uploads",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("file_name", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("uploaded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        schema="ingestion",
    )
    op.create_table(
        "data_entry_types",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("module", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["module"],
            ["ingestion.modules.name"],
        ),
        sa.PrimaryKeyConstraint("name"),
        schema="ingestion",
    )
    op.create_table(
        "reports",
        sa.Column("module", sa.Text(), nullable=False),
        sa.Column("year", sa.BigInteger(), nullable=False),
        sa.Column("total_kg", sa.Numeric(precision=24, scale=9), nullable=True),
        sa.ForeignKeyConstraint(
            ["module"],
            ["ingestion.modules.name"],
        ),
        sa.PrimaryKeyConstraint("module", "year"),
        schema="ingestion",
    )
    op.create_table(
        "data_entries",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("data_entry_type", sa.Text(), nullable=False),
        sa.Column("year", sa.BigInteger(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("activity", sa.Text(), nullable=False),
        sa.Column("quantity", sa.Numeric(precision=12, scale=3), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["data_entry_type"],
            ["ingestion.data_entry_types.name"],
        ),
        sa.ForeignKeyConstraint(
            ["unit"],
            ["ingestion.units.code"],
        ),
        sa.PrimaryKeyConstraint("id"),
        schema="ingestion",
    )
    op.create_index(
        op.f("data_entries_data_entry_type_year"),
        "data_entries",
        ["data_entry_type", "year"],
        unique=False,
        schema="ingestion",
    )
    op.create_index(op.f("data_entries_job_id"), "data_entries", ["job_id"], unique=False, schema="ingestion")
    op.create_table(
        "factors",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("data_entry_type", sa.Text(), nullable=False),
        sa.Column("year", sa.BigInteger(), nullable=False),
        sa.Column("activity", sa.Text(), nullable=False),
        sa.Column("kg_per_unit", sa.Numeric(precision=12, scale=6), nullable=False),
        sa.Column("is_stale", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["data_entry_type"],
            ["ingestion.data_entry_types.name"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("data_entry_type", "year", "activity"),
        schema="ingestion",
    )
    op.create_table(
        "emissions",
        sa.Column("data_entry_id", sa.BigInteger(), nullable=False),
        sa.Column("factor_id", sa.BigInteger(), nullable=False),
        sa.Column("kg", sa.Numeric(precision=24, scale=9), nullable=False),
        sa.ForeignKeyConstraint(["data_entry_id"], ["ingestion.data_entries.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["factor_id"],
            ["ingestion.factors.id"],
        ),
        sa.PrimaryKeyConstraint("data_entry_id"),
        schema="ingestion",
    )
    modules = sa.table("modules", sa.column("name"), schema="ingestion")
    types = sa.table("data_entry_types", sa.column("name"), sa.column("module"), schema="ingestion")
    op.bulk_insert(modules, [{"name": module} for module in MODULES])
    op.bulk_insert(types, [{"name": name, "module": module} for module, names in MODULES.items() for name in names])


def downgrade() -> None:
    op.drop_table("emissions", schema="ingestion")
    op.drop_table("factors", schema="ingestion")
    op.drop_index(op.f("data_entries_job_id"), table_name="data_entries", schema="ingestion")
    op.drop_index(op.f("data_entries_data_entry_type_year"), table_name="data_entries", schema="ingestion")
    op.drop_table("data_entries", schema="ingestion")
    op.drop_table("reports", schema="ingestion")
    op.drop_table("data_entry_types", schema="ingestion")
    op.drop_table("uploads", schema="ingestion")
    op.drop_table("units", schema="ingestion")
    op.drop_table("rejected_rows", schema="ingestion")
    op.drop_table("modules", schema="ingestion")
