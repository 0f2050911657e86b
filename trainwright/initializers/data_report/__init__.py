"""Reports on a prepared dataset before anything trains: rows, tokens, duplicates, and what would end the training later."""
