"""The API over HTTPS: routing, authentication, TLS, connections and metrics."""
