"""Runs migrations over the connection that `Database.migrate` has opened, inside its transaction."""

from alembic import context

from services.tables.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
