"""Places on object stores."""
