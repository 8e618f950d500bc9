"""SQL over the tables of a target."""
