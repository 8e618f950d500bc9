"""Build Delta tables from landed changes: current state, history and changelog, exactly once.

`log` reads the landing, `merge` applies its changes, `target` stores the tables and `catalogs`
registers them. These need pyarrow only. `query`, `stream`, `sql`, `checks` and the frames of `target`
need pyspark; `catalogs.iceberg` needs pyiceberg.
"""
