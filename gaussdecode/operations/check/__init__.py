"""Check a configuration for `gaussdecode check`: findings, plan and report."""
