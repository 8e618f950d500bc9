"""A target compared with its source: rows by checksums, and comments."""
