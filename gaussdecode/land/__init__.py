"""Fifth stage: makes files and commit entries durable, then says so."""
