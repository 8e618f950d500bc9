"""GaussDB's own on the wire: sessions, log-in, replication messages, commands."""
