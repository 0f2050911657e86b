"""Waiting for a TrainJob, reporting its events, cancelling it, and running a whole step from request to result."""
