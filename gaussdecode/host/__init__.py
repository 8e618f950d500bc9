"""The machine: who may do what, cores, memory, and imports that can wait."""
