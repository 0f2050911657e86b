"""The embedded Kubernetes API server.

From the bottom up: `store` keeps objects and their history, `rest` gives them the verbs of Kubernetes, `http` puts those on
the wire, `serve` opens the port. Everything above the store shares its objects: whoever wants to change one copies it first.
"""
