"""Landed changes as rows: a DataFrame, and a source of Spark."""
