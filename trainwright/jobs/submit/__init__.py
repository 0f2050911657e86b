"""Submits a TrainJob or adopts the existing one, with the objects that it needs."""
