"""Tests of data: as they are declared, and asked of rows."""
