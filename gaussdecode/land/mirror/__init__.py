"""Copy a landing to an object store."""
