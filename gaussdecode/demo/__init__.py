"""Server, workload and proof of the demo; the daemon is the real one."""
