"""Store the target: Delta tables of immutable files, and versions of all tables together."""
