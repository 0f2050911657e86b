"""Who sends a request, and the secrets of a cluster: tokens, certificate authority, server certificate."""
