"""Text to typed values; for `cimport` only."""
