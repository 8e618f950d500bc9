"""Read rows that were in a table before the stream, or that are wanted again."""
