"""First stage: the only code that opens a database socket."""
