"""The checks of `gaussdecode check`, the plan, and the report of both."""
