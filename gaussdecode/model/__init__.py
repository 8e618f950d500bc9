"""Data classes that pass between the stages; they import nothing else of this package."""
