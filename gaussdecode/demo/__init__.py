"""The demo's server, workload and proof; the daemon is the real one."""
