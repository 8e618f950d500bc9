"""Rows of one relation version in one batch; for `cimport` only."""
