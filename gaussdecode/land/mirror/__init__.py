"""The copy of a landing on an object store."""
