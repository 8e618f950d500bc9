"""Output plug-ins: what has landed, as the server's own plug-ins would send it."""
