"""GaussDB's own wire protocol: sessions, log-in, replication messages, commands."""
