"""Runs of pipelines: compiling them, running them here or on a server of Kubeflow Pipelines, and schedules there."""
