"""Configuration: sections, options and their rules, and how a file is read."""
