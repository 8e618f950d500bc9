"""Bounds-checked reading of one message; for `cimport` only."""
