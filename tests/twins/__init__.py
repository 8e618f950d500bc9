"""Plain twins of the parsers: oracles of the tests, nothing of the product."""
