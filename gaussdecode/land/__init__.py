"""Fifth stage: write files and commit entries durably, then confirm them."""
