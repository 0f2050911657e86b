"""The embedded Kubernetes API server.

From the bottom up: `storage` holds objects and their history, `verbs` implements the Kubernetes verbs, `http` maps requests to
verbs and serves the port. Callers share the objects of the store: copy an object before changing it.
"""
