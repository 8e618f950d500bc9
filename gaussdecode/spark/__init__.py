"""From landed changes to tables: changelog, current state and history, exactly once.

The core (`landing`, `schema`, `plan`, `keys`, `events`, `merge`, `multiset`, `moves`,
`store`) needs pyarrow only; what imports pyspark is on top of it: `reading`, `datasource`,
`query`. `iceberg` needs pyiceberg.
"""
