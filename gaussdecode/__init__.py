"""Follows a logical replication slot and lands every committed change once, as Parquet."""

from typing import Final

__version__: Final = "0.2.0"
