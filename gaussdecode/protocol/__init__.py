"""Protocols without I/O: bytes and times in, decisions out."""
