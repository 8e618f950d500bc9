"""Declare tests of data, and run them on rows before a version is committed."""
