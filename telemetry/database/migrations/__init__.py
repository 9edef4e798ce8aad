"""Alembic's migrations of the telemetry database. They only add: a program one version back must go on working (a rollback)."""
