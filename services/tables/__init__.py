"""Tables with typed columns in SQLite or PostgreSQL, as tools: a service that knows the SDK and the contracts alone."""
