"""GaussDB's styles to the messages that decoders read."""
