"""Scenes that a user of a cluster lives through, written once and played on any API server: docs/acceptance.md."""
