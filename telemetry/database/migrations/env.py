"""Run by Alembic: migrates the connection that `access` hands over. Its transaction is the caller's."""

from alembic import context

from stitchfleet.telemetry.database.models import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
context.run_migrations()
