"""GaussDB's and openGauss's side of the conversation, without I/O."""
