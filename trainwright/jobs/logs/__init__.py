"""Logs of a TrainJob: reading, following, resuming after a lost connection, and recognising progress and errors in lines."""
