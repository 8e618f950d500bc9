"""Bounded queues between processes, in memory that has no name."""
