"""What keeps a target small, and compares it with its source."""
