"""Maintain a target: compact and vacuum it, set comments, compare it with its source."""
