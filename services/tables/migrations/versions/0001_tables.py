"""Tables, their columns, and the outcomes of writes."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None

_TEXT = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the three tables."""
    op.create_table(
        "tables",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("folded_name", _TEXT, nullable=False),
        sa.Column("description", sa.String(2000), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("next_row_id", sa.BigInteger, nullable=False),
        sa.Column("row_count", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tables"),
        sa.UniqueConstraint("tenant", "folded_name", name="uq_tables_tenant_folded_name"),
    )
    op.create_table(
        "columns",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("table_id", sa.String(40), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("type", sa.String(20), nullable=False),
        sa.Column("required", sa.Boolean, nullable=False),
        sa.Column("options", sa.JSON, nullable=False),
        sa.Column("filter_display", sa.String(20)),
        sa.PrimaryKeyConstraint("id", name="pk_columns"),
        sa.UniqueConstraint("table_id", "position", name="uq_columns_table_id_position"),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name="fk_columns_table_id", ondelete="CASCADE"),
    )
    op.create_table(
        "outcomes",
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("outcome", sa.JSON, nullable=False),
        sa.Column("saved_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "key", "position", name="pk_outcomes"),
    )
    op.create_index("ix_outcomes_saved_at", "outcomes", ["saved_at"])
