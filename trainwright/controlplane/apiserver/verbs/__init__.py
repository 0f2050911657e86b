"""The Kubernetes verbs on stored objects: get, list, create, update, patch, delete, watch."""
