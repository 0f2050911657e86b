"""What triggers do for a job while its task is deferred: its log, and its end. It imports no operator."""
