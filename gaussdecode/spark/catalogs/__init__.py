"""Register a target's tables in external catalogs: Iceberg, or a catalog of the Spark session."""
