"""Translate GaussDB's styles into the messages that decoders read."""
