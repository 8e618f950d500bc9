"""Compare a target with its source: rows by checksums, and comments."""
