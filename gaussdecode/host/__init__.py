"""Access rights, cores and memory of the machine, and imports that can wait."""
