"""A slot of PostgreSQL, over libpq."""
