"""Authentication and the credentials of a cluster: tokens, certificate authority, server certificate."""
