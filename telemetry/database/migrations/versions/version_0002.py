"""Indexes for a fleet's database: queries by namespace (who may write, what to delete), and for the events of one kind (lost
records)."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Brings the schema to this version; the module's docstring says what changes."""
    op.create_index("jobs_by_namespace", "jobs", ["namespace"])
    op.create_index("events_by_kind", "events", ["kind"])
