"""Defaults that depend on other fields, as the API server and the JobSet webhook fill them in."""
