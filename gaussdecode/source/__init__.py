"""First stage: receive the stream; the only code that opens a database socket."""
