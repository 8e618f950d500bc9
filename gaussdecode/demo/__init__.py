"""What `gaussdecode demo` needs beside the daemon: a server, a workload, a proof."""
