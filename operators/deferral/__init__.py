"""What triggers do for a job while its task is deferred: its log, and the lease on it. It imports no operator."""
