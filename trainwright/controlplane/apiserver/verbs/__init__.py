"""The verbs of the API on stored objects: get, list, create, update, patch, delete, watch."""
