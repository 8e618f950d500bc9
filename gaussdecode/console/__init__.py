"""Command-line helpers: arguments, tables, progress, signals."""
