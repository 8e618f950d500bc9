"""The tables of a target in catalogs of others."""
