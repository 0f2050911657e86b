"""Admission inside the server: webhook rules, feature gates, priorities, and a TrainJob's policies."""
