"""The landing, as Spark's side reads it: commit log, schemas, files, and events on rows."""
