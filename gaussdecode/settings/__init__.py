"""Configuration: sections, options and their rules, and reading of the file."""
