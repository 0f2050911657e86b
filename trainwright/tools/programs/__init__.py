"""Programs that run in the environments of tools, by their paths. Each imports only its tool and the standard library."""
