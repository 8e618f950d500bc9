"""Access to object stores."""
