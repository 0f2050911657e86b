"""Finds complete checkpoints, exports them with a manifest, and verifies and restores exports."""
