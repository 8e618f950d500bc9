"""Read landed changes as rows: a DataFrame, and a data source of Spark."""
