"""What a configuration may say, and how it is read."""
