"""Show the state of the daemon: metrics, status, page and advice."""
