"""Read a slot of PostgreSQL, over libpq."""
