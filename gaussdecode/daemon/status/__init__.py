"""Metrics, status, page and advice: all that the daemon shows of itself."""
