"""Read a landing for Spark: commit log, schemas and files; turn changes into events on rows."""
