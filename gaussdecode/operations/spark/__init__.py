"""The work of ``gaussdecode spark``: one module per action."""
