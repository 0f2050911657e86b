"""Failure diagnosis of a TrainJob: the failure report, typed errors, exit codes, preemption."""
