"""Rows that were in a table before the stream, or are wanted again."""
