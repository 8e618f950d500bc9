"""Follows a logical replication slot and lands every committed change once, as Parquet."""

from importlib.metadata import version

__version__ = version("gaussdecode")
