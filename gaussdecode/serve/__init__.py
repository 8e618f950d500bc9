"""The last stage: send what has landed to clients that speak the replication protocol."""
