"""The target: Delta tables made of immutable files, and versions of all of them together."""
